"""What `trafo train` makes by default goes out in every format, and others compute the same."""

import json

import numpy as np
import pytest
import torch

from trafo.checkpoint.convert.gguf_file import load_gguf
from trafo.checkpoint.convert.hugging_face import load_hugging_face
from trafo.checkpoint.convert.llama2c import load_llama2c
from trafo.checkpoint.export import export_model, format_of
from trafo.errors import ConfigError, InputError
from trafo.models import GPT2, GPT2Config, TransformerLM
from trafo.tokenizer import Tokenizer
from trafo.training.auto.text import SHAPES, model_of

MERGES = [(b" ", b"t"), (b"h", b"e"), (b" t", b"he")]
TEXT = "the other, then; <|endoftext|>größer"


@pytest.fixture(scope="module")
def tokenizer():
    vocab = [bytes([i]) for i in range(256)] + [a + b for a, b in MERGES]
    return Tokenizer(dict(enumerate(vocab)), MERGES, ["<|endoftext|>"])


@pytest.fixture
def default_model():
    """The config that the automatic settings choose, with weights as if it were trained."""
    model = TransformerLM.from_config(model_of(SHAPES[0], 262)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def ids():
    return torch.randint(260, (2, 50))


@torch.no_grad()
def test_transformers_loads_the_default_model_and_its_tokenizer(
    tmp_path, default_model, tokenizer, ids
):
    transformers = pytest.importorskip("transformers")
    export_model(default_model, tmp_path / "out", tokenizer=tokenizer)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(default_model(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(load_hugging_face(tmp_path / "out")(ids), default_model(ids))
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert their_tokenizer.encode(TEXT) == tokenizer.encode(TEXT)
    assert their_tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    end = tokenizer.special_tokens["<|endoftext|>"]
    assert their_tokenizer.eos_token_id == theirs.generation_config.eos_token_id == end


@pytest.mark.parametrize("switch", [{"qkv_bias": True}, {"qk_norm": True}, {"window": 4}])
def test_transformers_cuts_words_as_we_do_whatever_the_model(tmp_path, tokenizer, ids, switch):
    """By the model's family it would take another tokenizer than that of the folder."""
    transformers = pytest.importorskip("transformers")
    model = TransformerLM(262, 64, 16, 2, 2, **switch).eval()
    export_model(model, tmp_path / "out", tokenizer=tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "the 12345 e\N{COMBINING ACUTE ACCENT}\n\n  x"
    assert theirs.encode(text) == tokenizer.encode(text)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(model(ids), again(ids).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["folder", "model.gguf", "model.bin"])
def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path, tokenizer, name):
    model = TransformerLM(200, 32, 32, 1, 4, 48)
    with pytest.raises(ConfigError, match=r"the tokenizer has \d+ ids, the model 200"):
        export_model(model, tmp_path / name, tokenizer=tokenizer)
    assert not list(tmp_path.iterdir())


@torch.no_grad()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_default_model_as_gguf(tmp_path, default_model, tokenizer, ids, dtype):
    """The package's own reader finds the weights; ours gives the logits."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    export_model(default_model, path, tokenizer=tokenizer, dtype=dtype)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    head = stored["output.weight"]
    assert head.tensor_type.name == {"float32": "F32", "bfloat16": "BF16"}[dtype]
    numbers = gguf.quants.dequantize(head.data, head.tensor_type)
    expected = default_model.lm_head.weight.to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(numbers, expected)
    tolerance = 1e-5 if dtype == "float32" else 0.2
    torch.testing.assert_close(load_gguf(path)(ids), default_model(ids), atol=tolerance, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("tied", [False, True])
def test_the_default_model_as_llama2c(tmp_path, default_model, tokenizer, ids, tied):
    if tied:
        config = {**default_model.config.__dict__, "tied_head": True}
        default_model = TransformerLM(**config).eval()
    path = tmp_path / "model.bin"
    parity = export_model(default_model, path, tokenizer=tokenizer)
    torch.testing.assert_close(load_llama2c(path)(ids), default_model(ids))
    assert json.loads((tmp_path / "model.bin.parity.json").read_text())["format"] == "llama2c"
    assert parity.largest_logit_difference == 0
    assert Tokenizer.load(tmp_path / "model.bin.tokenizer").hash == tokenizer.hash
    # run.c of llama2.c reads cos and sin from the file's first versions: 1 and 0 at position 0.
    size, half = default_model.config.context_length, default_model.config.d_head // 2
    end = -262 * 64 if not tied else None
    tables = np.fromfile(path, "<f4")[:end][-2 * size * half :].reshape(2, size, half)
    np.testing.assert_allclose(tables[:, 1, 0], [np.cos(1), np.sin(1)], rtol=1e-6)


@pytest.mark.parametrize("name", ["out", "out.gguf", "out.bin"])
def test_what_is_not_a_number_is_not_exported(tmp_path, default_model, name):
    weight = default_model.layers[0].ffn.w2.weight.data
    weight[0, 0] = 1e6
    if name == "out":
        with pytest.raises(InputError, match=r"as hugging-face, .* NaN .*; use float32"):
            export_model(default_model, tmp_path / name, dtype="float16")
    weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="the model computes NaN or infinity"):
        export_model(default_model, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_name_decides_the_format():
    assert [format_of(p) for p in ("a/out.gguf", "out.bin", "out", "v1.2")] == [
        "gguf",
        "llama2c",
        "hf",
        "hf",
    ]


def test_what_llama2c_cannot_hold_is_refused(tmp_path):
    path = tmp_path / "model.bin"
    shape = {"vocab_size": 9, "context_length": 8, "d_model": 8, "num_layers": 1, "num_heads": 2}
    with pytest.raises(ConfigError, match=r"rope_theta is 500\.0, llama2\.c has 10000"):
        export_model(TransformerLM(**shape, rope_theta=500.0), path)
    with pytest.raises(ConfigError, match="qk_norm is True"):
        export_model(TransformerLM(**shape, qk_norm=True), path)
    with pytest.raises(ConfigError, match="no counterpart of a GPT2"):
        export_model(GPT2(GPT2Config(**shape)), path)
    with pytest.raises(ConfigError, match="hold float32 only"):
        export_model(TransformerLM(**shape), path, dtype="float16")
    assert not list(tmp_path.iterdir())
