"""From Python: text in, a run out that generates, resumes, plots and is exported."""

from pathlib import Path

import numpy as np
import pytest
import torch

import trafo
from trafo.checkpoint.bundle import load_bundle
from trafo.config import with_values
from trafo.errors import ConfigError, InputError
from trafo.generate import GenerationConfig, generate
from trafo.generate.beam_config import BeamConfig
from trafo.generate.translate import translate
from trafo.runtime.sizes import parse_duration
from trafo.training.config import TrainConfig
from trafo.training.run import Run

TEXT = "Once upon a time there was a little fox. The fox was red, and it was kind.\n" * 60
SMALL = {"d_model": 16, "num_layers": 1, "num_heads": 2, "context_length": 16, "vocab_size": 280}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "fox.txt").write_text(TEXT)
    return trafo.train(
        folder / "fox.txt",
        steps=4,
        batch_size=4,
        out=folder / "run",
        model=SMALL,
        data={"cache": folder / "cache"},
        watch={"tensorboard": False, "sample_every": 0},
    )


def test_a_run_has_what_it_was_asked_for(run):
    config = run.read_config()
    assert (config.steps, config.batch_size) == (4, 4)
    assert config.model.d_model == 16
    assert config.optimizer.name == "muon"  # chosen automatically, as on the command line
    assert [record["step"] for record in run.metrics if record["kind"] == "validation"][-1] == 4
    assert repr(run) == f"Run({str(run.path)!r}, step 4)"


@torch.no_grad()
def test_the_lines_of_the_issue(run, tmp_path):
    assert isinstance(run.generate("Once upon a time", temperature=0.7, max_new_tokens=5), str)
    model, tokenizer = trafo.load(run)
    logits = model(tokenizer.encode_tensor("The fox"))
    assert torch.equal(logits, run.model(run.tokenizer.encode_tensor("The fox")))
    seen = trafo.attention(model, tokenizer, "The fox")
    num_tokens = logits.shape[1]
    assert "".join(seen.tokens) == "The fox"
    assert seen.weights.shape == (1, 2, num_tokens, num_tokens)
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(1, 2, num_tokens))
    assert seen.weights.triu(1).abs().max() == 0  # nothing looks ahead
    for name in ("out.gguf", "out.bin", "out"):
        assert trafo.export(run, tmp_path / name).largest_logit_difference < 1e-5
        again, same = trafo.load(tmp_path / name)
        assert same.hash == tokenizer.hash
        torch.testing.assert_close(again(tokenizer.encode_tensor("The fox")), logits)
    trafo.export((model, tokenizer), tmp_path / "pair.gguf")


def test_generate_is_what_the_library_generates(run):
    config = GenerationConfig(seed=3, max_new_tokens=6, kernel="auto")
    (done,) = generate(run.model, run.tokenizer, ["fox"], config)
    assert run.generate("fox", seed=3, max_new_tokens=6) == done.text


def test_attention_of_a_first_layer_by_the_formula(run):
    """softmax(q k^T / sqrt(d)) computed by hand, with the model's own matrices."""
    model, tokenizer = run.model, run.tokenizer
    attn, ids = model.layers[0].attn, tokenizer.encode_tensor("The fox")
    with torch.no_grad():
        x = model.layers[0].ln1(model.token_embeddings(ids))
        q, k = (p(x)[0].view(-1, 2, 8).transpose(0, 1) for p in (attn.q_proj, attn.k_proj))
        q, k = attn.rope(q), attn.rope(k)
        scores = q @ k.transpose(1, 2) / 8**0.5
        scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf)
    found = trafo.attention(model, tokenizer, "The fox").weights[0]
    torch.testing.assert_close(found, scores.softmax(-1), atol=1e-5, rtol=1e-4)


def test_a_run_is_prolonged(run):
    other, before = Run(run.path), run.model.head_weight.clone()
    assert torch.equal(other.model.head_weight, before)
    longer = run.resume(steps=6)
    assert (longer.state.step, longer.path) == (6, run.path)
    assert run.state.step == run.metrics[-1]["step"] == 6
    # Of this object, and of another that has kept the older model.
    newest = trafo.load(run)[0].head_weight
    assert not torch.equal(newest, before)
    for one in (run, longer, other):
        assert torch.equal(one.model.head_weight, newest)
    assert run.model is run.model  # not loaded again without need


def test_a_budget_is_more_time_from_now_on(run):
    """Also the same as before, and twice: the run's own budget counts from its start."""
    for _ in range(2):
        before, steps = run.state.seconds, run.state.step
        budget = run.resume(budget="1.5s").read_config().budget
        # From the newest checkpoint on, which is saved before the last measurement.
        assert 1.5 < parse_duration(budget) <= before + 1.501
        assert run.state.step > steps
    steps = run.state.step
    assert run.resume().state.step == steps  # nothing more was asked for


def test_a_notebook_shows_the_curve(run):
    picture = run.plot()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.path == run.curve_file


def test_wrong_settings_are_named(tmp_path):
    (tmp_path / "fox.txt").write_text(TEXT)
    with pytest.raises(ConfigError, match=r"unknown key model.d_modell; did you mean model.d_mod"):
        trafo.train(tmp_path / "fox.txt", model={"d_modell": 8})
    with pytest.raises(ConfigError, match=r"trafo.train: steps: expected int, got 'many'"):
        trafo.train(tmp_path / "fox.txt", steps="many")
    with pytest.raises(InputError, match=r"nowhere.txt"):
        trafo.train(tmp_path / "nowhere.txt")
    with pytest.raises(ConfigError, match=r"trafo.train: steps: expected int, got \{'a': 1\}"):
        trafo.train(tmp_path / "fox.txt", steps={"a": 1})
    with pytest.raises(ConfigError, match=r"validation: expected tuple\[str, ...\], got \{'a'"):
        trafo.train(tmp_path / "fox.txt", validation={"a": 1})


def test_numbers_of_other_libraries_are_numbers():
    given = {"steps": np.int64(3), "optimizer": {"lr": np.float64(0.5)}, "seed": torch.tensor(7)}
    config = with_values(TrainConfig(text=("a",)), given, "here")
    assert (config.steps, config.optimizer.lr, config.seed) == (3, 0.5, 7)


def test_what_generate_does_not_know_is_named(run):
    with pytest.raises(ConfigError, match="unknown key max_tokens; did you mean max_new_tokens"):
        run.generate("fox", max_tokens=3)
    for stop in ("fox", [1], [""], 3):
        with pytest.raises(ConfigError, match="it must be a list of strings that are not empty"):
            run.generate("fox", stop=stop)


def test_an_empty_path_is_not_this_folder(run):
    with pytest.raises(InputError, match="the path is empty"):
        trafo.load("")
    with pytest.raises(InputError, match="the path is empty"):
        trafo.export(run, "")


def test_ids_of_other_shapes_are_refused_in_words():
    """In a process of one's own: here shapes are checked before the model sees them."""
    import subprocess
    import sys

    program = """
import torch, trafo
from trafo.errors import InputError
model = trafo.models.TransformerLM(9, 8, 8, 1, 2)
for shape in [(5,), (0, 5), (2, 0), (1, 1, 5)]:
    try:
        model(torch.zeros(shape, dtype=torch.long))
    except InputError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert len(said) == 4
    assert all("ids have the shape" in line for line in said)
    assert all("expected (batch, seq)" in line for line in said)


def test_ids_that_are_none_are_refused_in_words():
    """In a process of one's own, too."""
    import subprocess
    import sys

    program = """
import torch, trafo
from trafo.errors import InputError
from trafo.models import EncoderDecoder, EncoderDecoderConfig
from trafo.models import RecurrentConfig, RecurrentEncoderDecoder
pair = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 8}
some = torch.tensor([[1, 2]])
translators = [
    EncoderDecoder(EncoderDecoderConfig(**pair, num_heads=2, d_ff=8)),
    RecurrentEncoderDecoder(RecurrentConfig(**pair)),
]
models = [trafo.models.TransformerLM(9, 8, 8, 1, 2)]
models += [lambda ids, model=model: model(ids, some) for model in translators]
models += [lambda ids, model=model: model(some, ids) for model in translators]
for model in models:
    for ids in [[1, 2], some.float(), some.bool(), -some, some + 7]:
        try:
            model(ids)
        except InputError as error:
            print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    of_one_model = [
        "ids are list, expected a tensor of whole numbers",
        "ids are torch.float32, expected a tensor of whole numbers",
        "ids are torch.bool, expected a tensor of whole numbers",
        "-2 is not an id of this model; ids are whole numbers from 0 to 8",
        "9 is not an id of this model; ids are whole numbers from 0 to 8",
    ]
    said = [line.split("; torch.tensor")[0] for line in done.stdout.splitlines()]
    assert said == of_one_model * 5


def test_relative_texts_and_several(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(TEXT)
    Path("b.txt").write_text(TEXT.upper())
    two = trafo.train(
        ["a.txt", Path("b.txt")],
        steps=1,
        batch_size=2,
        model=SMALL,
        watch={"tensorboard": False, "sample_every": 0},
    )
    assert two.path == Path("runs/a")
    assert [Path(text).name for text in two.read_config().text] == ["a.txt", "b.txt"]


def test_sentence_pairs_in_and_a_run_out_that_translates(pairs, tmp_path):
    run = trafo.train(
        pairs=pairs,
        steps=2,
        out=tmp_path / "run",
        encoder_decoder={"d_model": 16, "num_heads": 2, "d_ff": 16},
        decoding={"beam": 2, "max_extra": 2, "max_ratio": 0.0},
        data={"cache": tmp_path / "cache"},
        watch={"tensorboard": False, "sample_every": 0, "bleu_sentences": 0},
    )
    bundle = load_bundle(run.path)
    for beam in (2, 1):
        config = BeamConfig(beam=beam, max_extra=2, max_ratio=0.0)
        ((found,),) = translate(bundle.model, bundle.tokenizer, ["one two"], config)
        given = {} if beam == 2 else {"beam": 1}
        assert run.translate(["one two", ""], **given) == [found.text, ""]
