import json

import numpy as np
import pytest
import torch

from trafo.checkpoint.convert import load_gguf, save_gguf
from trafo.checkpoint.convert.gguf_tensors import to_gguf_state
from trafo.errors import ConfigError, FormatError
from trafo.models import GPT2, GPT2Config, TransformerLM
from trafo.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf")

VOCAB = {**{i: bytes([i]) for i in range(256)}, 256: b" t"}
BYTES = Tokenizer(VOCAB, [(b" ", b"t")], ["<|endoftext|>"])


def lm(**switches):
    torch.manual_seed(0)
    return TransformerLM(260, 32, 32, 2, 4, 48, 700.0, num_kv_heads=2, **switches)


def small_gpt2(**switches):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=260, context_length=32, d_model=32, num_layers=2, num_heads=4, **switches
    )
    model = GPT2(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


MODELS = {
    "llama": lm,
    "llama-tied": lambda: lm(tied_head=True),
    "gpt2": small_gpt2,
    "gpt2-untied": lambda: small_gpt2(tied_head=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_reads_back_tensor_for_tensor(tmp_path, name):
    model, path = MODELS[name](), tmp_path / "model.gguf"
    parity = save_gguf(model, path)
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    expected = to_gguf_state(model)
    assert stored.keys() == expected.keys()
    for key, tensor in expected.items():
        np.testing.assert_array_equal(stored[key], tensor.numpy())
    assert parity.largest_logit_difference == 0.0
    assert json.loads((tmp_path / "model.gguf.parity.json").read_text())["format"] == "gguf-float32"


@pytest.mark.parametrize("name", MODELS)
def test_names_and_shapes_are_those_that_the_package_knows(tmp_path, name):
    """Every tensor of the architecture's list that has no optional part, and no other."""
    model, path = MODELS[name](), tmp_path / "model.gguf"
    save_gguf(model, path)
    kind = gguf.MODEL_ARCH.GPT2 if name.startswith("gpt2") else gguf.MODEL_ARCH.LLAMA
    known = {gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[kind]}
    stored = {
        tensor.name.removesuffix(".weight").removesuffix(".bias")
        for tensor in gguf.GGUFReader(path).tensors
    }
    generic = {
        key.replace("blk.0.", "blk.{bid}.").replace("blk.1.", "blk.{bid}.") for key in stored
    }
    assert generic <= known


def test_metadata_is_what_llama_cpp_asks_for(tmp_path):
    save_gguf(lm(), tmp_path / "model.gguf")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    found = {key: field.contents() for key, field in reader.fields.items()}
    expected = {
        "general.architecture": "llama",
        "llama.context_length": 32,
        "llama.embedding_length": 32,
        "llama.block_count": 2,
        "llama.feed_forward_length": 48,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.rope.dimension_count": 8,
        "llama.rope.freq_base": 700.0,
        "llama.vocab_size": 260,
        "tokenizer.ggml.model": "no_vocab",
    }
    assert expected.items() <= found.items()
    assert found["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)


def test_a_tokenizer_goes_along(tmp_path):
    save_gguf(lm(), tmp_path / "model.gguf", tokenizer=BYTES)
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    kinds = reader.get_field("tokenizer.ggml.token_type").contents()
    assert len(tokens) == len(kinds) == 260
    assert tokens[ord("a")] == "a"
    assert tokens[256:258] == ["Ġt", "<|endoftext|>"]
    control, unused = gguf.TokenType.CONTROL, gguf.TokenType.UNUSED
    assert kinds[256:] == [gguf.TokenType.NORMAL, control, unused, unused]
    assert reader.get_field("tokenizer.ggml.merges").contents() == ["Ġ t"]
    assert reader.get_field("tokenizer.ggml.eos_token_id").contents() == 257


def test_half_precision_is_measured(tmp_path):
    parity = save_gguf(lm(), tmp_path / "model.gguf", dtype="float16")
    assert 0 < parity.largest_logit_difference < 0.01 * parity.largest_logit
    assert parity.same_most_likely_token > 0.95


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="qk_norm is True"):
        save_gguf(lm(qk_norm=True), tmp_path / "model.gguf")
    own = Tokenizer(VOCAB, [(b" ", b"t")], pattern="[a-z]+")
    with pytest.raises(ConfigError, match="does not know the split pattern"):
        save_gguf(lm(), tmp_path / "model.gguf", tokenizer=own)
    assert not list(tmp_path.iterdir())


def test_what_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"not at all" * 10)
    with pytest.raises(FormatError, match="not a GGUF file"):
        load_gguf(tmp_path / "model.gguf")
