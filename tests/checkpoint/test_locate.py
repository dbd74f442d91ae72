"""Whatever holds a model brings its tokenizer, and says which tokens begin and end a text."""

import json
import struct
import subprocess
import sys

import pytest
import torch

from trafo.checkpoint.bundle import load_bundle, load_config
from trafo.checkpoint.convert.gguf_file import save_gguf
from trafo.checkpoint.export import export_model
from trafo.checkpoint.locate import load_tokenizer
from trafo.errors import FormatError, InputError
from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer

TEXT = "the other, then; <|endoftext|>größer  42\n"
MERGES = [(b" ", b"t"), (b"h", b"e"), (b" t", b"he")]
VOCAB = dict(enumerate([bytes([i]) for i in range(256)] + [a + b for a, b in MERGES]))
SHAPE = {"vocab_size": 264, "context_length": 16, "d_model": 16, "num_layers": 1, "num_heads": 2}
NAMES = {"hf": "folder", "gguf": "model.gguf", "llama2c": "model.bin"}


def tokenizer(pattern="gpt2", specials=("<|endoftext|>",)):
    return Tokenizer(VOCAB, MERGES, specials, pattern=pattern)


@torch.no_grad()
@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "gpt4o"])
@pytest.mark.parametrize("to", NAMES)
def test_what_was_exported_is_loaded_as_it_is(tmp_path, to, pattern):
    model, path = TransformerLM(**SHAPE).eval(), tmp_path / NAMES[to]
    export_model(model, path, tokenizer=tokenizer(pattern))
    bundle = load_bundle(path, fast=False)
    ids = torch.randint(264, (2, 16))
    assert torch.equal(bundle.model(ids), model(ids))
    assert not bundle.model.training
    assert bundle.source == path
    assert bundle.tokenizer.hash == tokenizer(pattern).hash
    assert bundle.tokenizer.encode(TEXT) == tokenizer(pattern).encode(TEXT)
    end = tokenizer().special_tokens["<|endoftext|>"]
    assert markers(bundle.tokenizer) == (None, frozenset([end]), frozenset([end]))
    assert load_config(path).d_model == 16


def test_a_tensor_of_ids_begins_with_the_begin_token(tmp_path):
    export_model(TransformerLM(**SHAPE), tmp_path / "out", tokenizer=tokenizer())
    plain = load_tokenizer(tmp_path / "out")
    assert plain.encode_tensor("then").tolist() == [plain.encode("then")]
    content = json.loads((tmp_path / "out" / "tokenizer.json").read_text())
    content["post_processor"] = template_of("<|begin|>", "A")  # the same id
    (tmp_path / "out" / "tokenizer.json").write_text(json.dumps(content))
    begun = load_tokenizer(tmp_path / "out")
    assert begun.encode_tensor("then").tolist() == [[259, *plain.encode("then")]]
    assert plain.encode_tensor("").shape == (1, 0)


SPECIALS = ("<|begin|>", "<|end|>", "<think>", "<|eot|>")


def template_of(*names):
    """A post-processor: the special tokens around a text, which is "A"."""
    pieces = [
        {"Sequence" if name == "A" else "SpecialToken": {"id": name, "type_id": 0}}
        for name in names
    ]
    ids = {name: 259 + SPECIALS.index(name) for name in names if name != "A"}
    tokens = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()}
    return {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": tokens,
    }


def markers(tokenizer):
    return tokenizer.begin, tokenizer.ends, tokenizer.hidden


def files_markers(folder, **files):
    return markers(with_files(folder, **files))


def with_files(folder, *, template=None, **files):
    """A Hugging Face folder with other begin and end tokens."""
    export_model(TransformerLM(**SHAPE), folder, tokenizer=tokenizer(specials=SPECIALS))
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"][2]["special"] = False
    content["post_processor"] = template
    (folder / "tokenizer.json").write_text(json.dumps(content))
    for name, value in files.items():
        path = folder / f"{name}.json"
        old = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(old | value))
    return load_tokenizer(folder)


def test_hugging_face_says_where_a_text_begins_and_ends(tmp_path):
    template = template_of("<|begin|>", "A")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    sequence = {"type": "Sequence", "processors": [byte_level, template]}
    hidden = frozenset([259, 260, 262])  # <think> is text
    assert files_markers(
        tmp_path / "a", template=sequence, generation_config={"eos_token_id": [260, 262]}
    ) == (259, frozenset([260, 262]), hidden)
    assert files_markers(tmp_path / "b", config={"eos_token_id": 262}) == (
        None,
        frozenset([262]),
        hidden,
    )
    assert files_markers(
        tmp_path / "c",
        tokenizer_config={"eos_token": {"__type": "AddedToken", "content": "<|end|>"}},
    ) == (None, frozenset([260]), hidden)
    assert files_markers(
        tmp_path / "d",
        template=byte_level,
        tokenizer_config={"bos_token": "<|begin|>", "add_bos_token": True},
    ) == (None, frozenset(), hidden)
    transformers = pytest.importorskip("transformers")
    for name in "abcd":
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        ours = load_tokenizer(tmp_path / name)
        assert ours.encode_tensor(TEXT).tolist() == [theirs.encode(TEXT)]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (template_of("<|begin|>", "A", "<|end|>"), "TemplateProcessing puts more around"),
        (template_of("A", "<|end|>"), "TemplateProcessing puts more around"),
        (template_of("<|begin|>", "<|eot|>", "A"), "TemplateProcessing puts more around"),
        (
            {
                "type": "Sequence",
                "processors": [template_of("<|begin|>", "A"), template_of("<|eot|>", "A")],
            },
            "TemplateProcessing puts more around",
        ),
        (
            {"type": "RobertaProcessing", "sep": ["<|end|>", 260], "cls": ["<|begin|>", 259]}
            | {"trim_offsets": True, "add_prefix_space": False},
            "RobertaProcessing puts more around",
        ),
        (
            {"type": "BertProcessing", "sep": ["<|end|>", 260], "cls": ["<|begin|>", 259]},
            "BertProcessing puts more around",
        ),
    ],
)
def test_more_around_a_text_than_a_begin_token_is_refused(tmp_path, template, says):
    with pytest.raises(FormatError, match=says):
        with_files(tmp_path / "a", template=template)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    plain = theirs.encode(TEXT, add_special_tokens=False)
    assert theirs.encode(TEXT) not in (plain, [259, *plain])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"split_special_tokens": True}, "split_special_tokens"),
        ({"add_prefix_space": True}, "add_prefix_space"),
        ({"pad_token": "[PAD]"}, r"'\[PAD\]' is named beside tokenizer.json"),
        ({"extra_special_tokens": ["[X]"]}, r"'\[X\]' is named"),
        ({"additional_special_tokens": ["[X]"]}, r"'\[X\]' is named"),
        ({"added_tokens_decoder": {"263": {"content": "[X]"}}}, r"'\[X\]' is named"),
    ],
)
def test_settings_beside_the_tokenizer_that_change_ids_are_refused(tmp_path, settings, says):
    with pytest.raises(FormatError, match=says):
        with_files(tmp_path / "a", tokenizer_config=settings)


def test_a_token_of_the_vocabulary_that_is_named_is_special(tmp_path):
    with_files(tmp_path / "a", special_tokens_map={"mask_token": "he"})
    ours = load_tokenizer(tmp_path / "a")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    assert ours.special_tokens["he"] == theirs.mask_token_id
    text = "the path with <|end|>"
    assert ours.encode(text) == theirs.encode(text)


def test_truncation_and_padding_are_not_applied_as_in_transformers(tmp_path, capsys):
    with_files(tmp_path / "a")
    content = json.loads((tmp_path / "a" / "tokenizer.json").read_text())
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 262, "pad_type_id": 0, "pad_token": "<|eot|>"}
    content |= {"truncation": cut, "padding": pad}
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(content))
    ours = load_tokenizer(tmp_path / "a").encode_tensor(TEXT).tolist()
    said = capsys.readouterr().err
    assert "does not apply its truncation" in said
    assert "does not apply its padding" in said
    transformers = pytest.importorskip("transformers")
    assert ours == [transformers.AutoTokenizer.from_pretrained(tmp_path / "a").encode(TEXT)]


@pytest.mark.parametrize("to", NAMES)
def test_exports_begin_and_end_texts_as_their_source_does(tmp_path, to):
    template = template_of("<|begin|>", "A")
    ends = {"eos_token_id": [260, 262]}
    given = with_files(tmp_path / "in", template=template, generation_config=ends)
    source = load_bundle(tmp_path / "in")
    export_model(source.model, tmp_path / NAMES[to], tokenizer=source.tokenizer)
    again = load_bundle(tmp_path / NAMES[to]).tokenizer
    if to == "llama2c":  # trafo's own folder does not say which special tokens are shown
        assert again.hidden == given.hidden | {261}
    else:
        assert again.hidden == given.hidden
    assert (again.begin, again.ends) == (259, frozenset([260, 262]))
    if to == "hf":
        transformers = pytest.importorskip("transformers")
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / NAMES[to])
        assert again.encode_tensor(TEXT).tolist() == [theirs.encode(TEXT)]
        assert theirs.decode([261, 262], skip_special_tokens=True) == "<think>"


def test_transformers_puts_the_same_token_first(tmp_path):
    transformers = pytest.importorskip("transformers")
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|begin|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [259], "tokens": ["<|begin|>"]}},
    }
    with_files(tmp_path / "out", template=template)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = load_tokenizer(tmp_path / "out")
    assert ours.encode_tensor(TEXT).tolist() == [theirs.encode(TEXT)]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("llama", r"its tokenizer is SentencePiece \(llama\); trafo reads byte-level BPE"),
        ("bert", "its tokenizer is bert"),
        ("no_vocab", "holds no tokenizer"),
    ],
)
def test_other_tokenizers_in_gguf_files_are_refused_by_name(tmp_path, kind, message):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tokenizer_model(kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(FormatError, match=message):
        load_tokenizer(tmp_path / "model.gguf")


def test_gguf_says_where_a_text_begins_and_ends(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    types = gguf.TokenType
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(["a", "b", "Ġ", "ab", "<|begin|>", "<|end|>", "<tool>", "[PAD7]"])
    normal = [types.NORMAL] * 4
    writer.add_token_types(
        [*normal, types.CONTROL, types.CONTROL, types.USER_DEFINED, types.UNUSED]
    )
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(4)
    writer.add_eos_token_id(5)
    writer.add_eot_token_id(6)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = load_tokenizer(path)
    assert markers(found) == (4, frozenset([5, 6]), frozenset([4, 5, 6]))
    assert found.encode("ab<tool> b") == [3, 6, 2, 1]
    assert found.pattern == "llama3"
    assert 7 not in found.vocab


@pytest.mark.parametrize(
    ("vocab", "file"), [(32_000, "tokenizer.bin"), (-512, "tok512.bin"), (4096, "tok4096.bin")]
)
def test_a_llama2c_file_says_which_tokenizer_it_needs_before_its_weights_are_read(
    tmp_path, vocab, file
):
    path = tmp_path / "stories.bin"
    path.write_bytes(struct.pack("<7i", 288, 768, 6, 6, 6, vocab, 256))  # without its weights
    message = rf"a tokenizer of {abs(vocab):,} tokens: llama2.c's {file}, or the folder stories.bin"
    with pytest.raises(InputError, match=message):
        load_bundle(path)
    assert load_config(path).num_heads == 6
    path.write_bytes(b"PK" + bytes(100))
    with pytest.raises(FormatError, match=r"not a llama2.c model"):
        load_bundle(path)


def test_tokenizers_are_found_without_torch(tmp_path):
    save_gguf(TransformerLM(**SHAPE), tmp_path / "model.gguf", tokenizer=tokenizer())
    export_model(TransformerLM(**SHAPE), tmp_path / "folder", tokenizer=tokenizer())
    program = f"""
import sys
sys.modules["torch"] = None  # importing it fails from now on
from trafo.checkpoint.locate import load_tokenizer
for name in ("model.gguf", "folder"):
    print(load_tokenizer({str(tmp_path)!r} + "/" + name).encode("then"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tokenizer().encode('then')}\n" * 2
