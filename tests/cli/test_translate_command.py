"""`trafo translate`, `trafo eval --pairs` and `trafo average` on a tiny model."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import sacrebleu
import torch

from trafo.checkpoint.bundle import describe_model, load_bundle
from trafo.checkpoint.snapshot import take
from trafo.checkpoint.store import CheckpointStore
from trafo.cli.main import main
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.errors import InputError
from trafo.generate.beam_config import BeamConfig
from trafo.generate.beam_reference import beam_search
from trafo.generate.translation_attention import translation_attention
from trafo.models import (
    EncoderDecoder,
    EncoderDecoderConfig,
    RecurrentConfig,
    RecurrentEncoderDecoder,
    TransformerLM,
)
from trafo.tokenizer import Tokenizer
from trafo.training.run import Run

BYTES = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
SENTENCES = ["a dog", "", "zwei Hunde <|endoftext|> é", "a"]
SEARCH = ["--max-extra", "3", "--max-ratio", "1"]
CONFIG = EncoderDecoderConfig(
    source_vocab_size=257, target_vocab_size=257, d_model=16, num_encoder_layers=1,
    num_decoder_layers=1, num_heads=2, d_ff=16, shared_embeddings="all", context_length=40,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with two checkpoints of fresh weights."""
    path = tmp_path_factory.mktemp("run")
    (path / "tokenizer").mkdir()
    PairTokenizer(BYTES, BYTES).save(path / "tokenizer")
    for step in (1, 2):
        torch.manual_seed(step)
        model = EncoderDecoder(CONFIG)
        store = CheckpointStore(path / "checkpoints")
        store.save(step, take(model, []), {}, describe_model(model, CONFIG))
    return path


def expected(folder, sentences, **settings):
    bundle = load_bundle(folder)
    config = BeamConfig(max_extra=3, max_ratio=1.0, **settings)
    tokenizer = bundle.tokenizer
    results = []
    for sentence in sentences:
        ids = [*f" {sentence}".encode(), tokenizer.end]
        found = beam_search(bundle.model, ids, tokenizer.end, config)
        results.append([(tokenizer.decode_target(each.ids), each.score) for each in found])
    return results


def test_a_line_in_is_a_line_out(trafo, folder, tmp_path):
    file, out = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_text("\n".join(SENTENCES) + "\n")
    code, text, _ = trafo("translate", file, "--beam", 2, *SEARCH)
    assert code == 0
    lines = text.split("\n")
    assert lines[1] == lines.pop() == ""
    full = [sentence for sentence in SENTENCES if sentence]
    best = [found[0][0] for found in expected(folder, full, beam=2)]
    assert [lines[0], *lines[2:]] == best
    assert trafo("translate", file, "--beam", 2, *SEARCH, "--out", out)[0] == 0
    assert out.read_text() == text


def test_standard_input_and_n_best(trafo, folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\nb")))
    code, text, _ = trafo("translate", "--beam", 2, "--n-best", 2, *SEARCH)
    assert code == 0
    found = expected(folder, ["a dog", "b"], beam=2, n_best=2)
    rows = [(i, *each) for i, both in enumerate(found) for each in both]
    assert text == "".join(f"{i} ||| {best} ||| {score:.4f}\n" for i, best, score in rows)


def test_standard_input_that_never_ends_is_refused(trafo, monkeypatch):
    monkeypatch.setattr("trafo.cli.translate._MOST_ON_STDIN", 1_000_000)
    with Path("/dev/zero").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, _, said = trafo("translate", *SEARCH)
    assert code == 2
    assert "standard input has more than 1,000,000 bytes" in said


def test_beam_search_settings_of_the_run_hold_unless_others_are_given(trafo, folder, tmp_path):
    file, sentences = tmp_path / "in.txt", ["a dog", "b", "two"]
    file.write_text("\n".join(sentences))
    of_run = {"beam": 3, "n_best": 2}
    (folder / "config.yaml").write_text(
        json.dumps({"decoding": of_run | {"max_extra": 3, "max_ratio": 1.0}, "steps": 5})
    )
    try:
        plain = trafo("translate", file)[1]
        one = trafo("translate", file, "--n-best", 1)[1]
        from_python = Run(folder).translate(sentences)
    finally:
        (folder / "config.yaml").unlink()
    found = expected(folder, sentences, **of_run)
    texts = [line.split(" ||| ")[1] for line in plain.splitlines()]
    assert texts == [text for both in found for text, _ in both]
    best = expected(folder, sentences, **of_run | {"n_best": 1})
    assert one == "".join(f"{each[0][0]}\n" for each in best)
    assert from_python == [both[0][0] for both in found]


def test_json_has_scores(trafo, folder, tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("a dog\n")
    code, text, _ = trafo("translate", file, "--json", "--beam", 1, *SEARCH)
    (((best, score),),) = expected(folder, ["a dog"], beam=1)
    content = json.loads(text)
    assert code == 0
    assert (content["source"], content["translation"]) == ("a dog", best)
    assert content["score"] == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_attention_of_every_kind(folder, kind):
    """Rows of probabilities, labelled with tokens."""
    bundle = load_bundle(folder)
    target = [*b"ein", 256]
    found = translation_attention(bundle.model, bundle.tokenizer, "a dog", target, kind)
    source, translated = [*" a dog", "(end)"], [*"ein", "(end)"]
    assert found.rows == (source if kind == "encoder" else translated)
    assert found.columns == (translated if kind == "decoder" else source)
    assert found.weights.shape == (1, 2, len(found.rows), len(found.columns))
    assert torch.allclose(found.weights.sum(-1), torch.ones(1))
    if kind == "decoder":
        assert not found.weights.triu(1).any()


def test_attention_of_the_recurrent_model():
    torch.manual_seed(0)
    config = RecurrentConfig(source_vocab_size=257, target_vocab_size=257, d_model=8, d_hidden=8)
    model = RecurrentEncoderDecoder(config).eval()
    tokenizer = PairTokenizer(BYTES, BYTES)
    found = translation_attention(model, tokenizer, "ab", [100, 256])
    assert found.weights.shape == (1, 1, 2, 4)
    assert torch.allclose(found.weights.sum(-1), torch.ones(1))
    with pytest.raises(InputError, match="a recurrent model has no self-attention"):
        translation_attention(model, tokenizer, "ab", [100, 256], "encoder")


def test_the_picture_and_the_tree(trafo, folder, tmp_path):
    file, picture = tmp_path / "in.txt", tmp_path / "attention.png"
    file.write_text("\na dog\n")
    flags = ["--attention", picture, "--attention-heads", "--tree", "--beam", 2, *SEARCH]
    code, text, err = trafo("translate", file, *flags)
    assert code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"attention: {picture}" in err
    bundle = load_bundle(folder)
    steps = []
    config = BeamConfig(beam=2, max_extra=3, max_ratio=1.0)
    beam_search(bundle.model, [*b" a dog", 256], 256, config, steps)
    kept = [f"{each.logprob:.2f}" for step in steps for each in step]
    # One node for each hypothesis that was kept, below the sentence.
    assert text.startswith("a dog\n")
    assert sorted(line.split()[-1] for line in text.splitlines()[1:]) == sorted(kept)


def test_eval_gives_loss_and_scores(trafo, folder, tmp_path):
    pairs = [("a dog", "ein Hund"), ("b", "b")]
    file = tmp_path / "test.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    flags = ["--beam", 1, "--max-extra", 3, "--max-ratio", 1]
    code, text, _ = trafo("eval", "--pairs", file, "--json", *flags)
    facts = json.loads(text)
    assert code == 0
    model, end = load_bundle(folder).model, 256
    total = number = 0
    with torch.no_grad():
        for source, target in pairs:
            ids = torch.tensor([*f" {target}".encode(), end])
            read = torch.tensor([[*f" {source}".encode(), end]])
            logits = model(read, torch.cat([ids[-1:], ids[:-1]])[None])[0]
            total += float(torch.nn.functional.cross_entropy(logits, ids, reduction="sum"))
            number += len(ids)
    assert facts["loss"] == pytest.approx(total / number, abs=1e-5)
    assert facts["perplexity"] == pytest.approx(math.exp(facts["loss"]))
    assert (facts["tokens"], facts["sentences"]) == (number, 2)
    hypotheses = [found[0][0] for found in expected(folder, ["a dog", "b"], beam=1)]
    references = [[target for _, target in pairs]]
    assert facts["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, references).score)
    assert facts["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, references).score)
    assert facts["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert trafo("eval", "--pairs", file, *flags)[1].endswith(f"{facts['chrf_signature']}\n")


def test_one_line_says_what_is_wrong(trafo, folder, tmp_path):
    long, empty = tmp_path / "long.txt", tmp_path / "empty.txt"
    long.write_text("short\n" + "x" * 60)
    empty.write_text("")
    cases = [
        (("translate", long), "sentence 2: has 62 tokens, the model takes 40; split it"),
        (("translate", empty), "empty.txt: is empty"),
        (("generate", "--prompt", "x"), "is a translation model, not a language model; use it"),
        (("eval",), "eval needs a TEXT, or sentence pairs by --pairs"),
        (("average", "--last", 3), "not a run"),
    ]
    for command, message in cases:
        code, _, err = trafo(*command)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_a_language_model_does_not_translate(tmp_path, capfd):
    model = TransformerLM(257, 8, 8, 1, 1)
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(1, take(model, []), {}, describe_model(model, model.config))
    Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"]).save(
        tmp_path / "tokenizer"
    )
    assert main(["translate", str(tmp_path), str(Path(__file__))]) == 2
    assert "is a language model, not a translation model; use it" in capfd.readouterr().err


def test_average(folder):
    store = CheckpointStore(folder / "checkpoints")
    assert store.save_average(2) == [1, 2]
    bundle = load_bundle(folder)
    assert bundle.source == store.average_path
    one, two = (load_bundle(store.path(step)).model.state_dict() for step in (1, 2))
    for name, tensor in bundle.model.state_dict().items():
        assert torch.allclose(tensor, (one[name] + two[name]) / 2)
