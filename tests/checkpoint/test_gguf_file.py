import json

import numpy as np
import pytest
import torch
from tests.weights import shake

from trafo.checkpoint.convert.gguf_file import load_gguf, save_gguf
from trafo.checkpoint.convert.weights import GGUF_LLAMA
from trafo.checkpoint.locate import load_tokenizer
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
    return shake(GPT2(config))


MODELS = {
    "llama": lm,
    "llama-tied": lambda: lm(tied_head=True),
    "llama-own-head": lambda: lm(head_size=12),
    "llama-linear": lambda: lm(rope_scaling="linear", rope_factor=2.5),
    "llama-3.1": lambda: lm(rope_scaling="llama3", rope_factor=4.0, rope_original_context=16),
    "llama-3.1-own": lambda: lm(
        rope_scaling="llama3", rope_factor=2.7, rope_low=1.5, rope_high=3.0
    ),
    "llama-biases": lambda: shake(lm(qkv_bias=True)),
    "qwen3": lambda: shake(lm(qk_norm=True, head_size=12, norm_eps=1e-3)),
    "gpt2": small_gpt2,
    "gpt2-untied": lambda: small_gpt2(tied_head=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_reads_back_tensor_for_tensor(tmp_path, name):
    model, path = MODELS[name](), tmp_path / "model.gguf"
    parity = save_gguf(model, path)
    again = load_gguf(path).state_dict()
    assert again.keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(again[key], tensor, rtol=0, atol=0)
    assert parity.largest_logit_difference == 0.0
    assert json.loads((tmp_path / "model.gguf.parity.json").read_text())["format"] == "gguf-float32"


@pytest.mark.parametrize("name", MODELS)
def test_names_and_shapes_are_those_that_the_package_knows(tmp_path, name):
    """Every tensor of the architecture's list that has no optional part, and no other."""
    model, path = MODELS[name](), tmp_path / "model.gguf"
    save_gguf(model, path)
    kind = gguf.MODEL_ARCH[name.split("-")[0].upper()]
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
    with pytest.raises(ConfigError, match=r"window is 5, which llama\.cpp would ignore"):
        save_gguf(lm(window=5), tmp_path / "model.gguf")
    own = Tokenizer(VOCAB, [(b" ", b"t")], pattern="[a-z]+")
    with pytest.raises(ConfigError, match="does not know the split pattern"):
        save_gguf(lm(), tmp_path / "model.gguf", tokenizer=own)
    assert not list(tmp_path.iterdir())


def blocks(stored, size):
    """The bytes of each block of 32 or 256 numbers, row by row."""
    return np.frombuffer(stored, np.uint8).reshape(-1, size)


def half(two_bytes):
    return float(np.frombuffer(bytes(two_bytes), np.float16)[0])


def q8_0(block):
    """d, then 32 signed bytes: x = d q."""
    return half(block[:2]) * block[2:].view(np.int8).astype(np.float32)


def q4_0(block):
    """d, then 16 bytes that hold number i and i + 16: x = d (q - 8)."""
    low, high = block[2:] & 15, block[2:] >> 4
    return half(block[:2]) * (np.concatenate([low, high]).astype(np.float32) - 8)


def q4_k(block):
    """d, dmin, eight scales and minima of 6 bits each, 256 numbers of 4: x = d s q - dmin m."""
    d, least, packed = half(block[:2]), half(block[2:4]), [int(b) for b in block[4:16]]
    numbers = []
    for j in range(8):
        if j < 4:
            scale, minimum = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
            minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4
        part = block[16 + 32 * (j // 2) :][:32]
        quants = part >> 4 if j % 2 else part & 15
        numbers.append(d * scale * quants.astype(np.float32) - least * minimum)
    return np.concatenate(numbers)


def q6_k(block):
    """4 low bits, 2 high bits, 16 signed scales, d: x = d s (q - 32)."""
    low, high = block[:128].reshape(2, 2, 32), block[128:192].reshape(2, 32)
    scales, d = block[192:208].view(np.int8).astype(np.float32), half(block[208:])
    numbers = []
    for half_block in range(2):
        for quarter in range(4):
            four = low[half_block, quarter % 2] >> (4 * (quarter // 2)) & 15
            two = high[half_block] >> (2 * quarter) & 3
            numbers.append((four | two << 4).astype(np.float32) - 32)
    return d * np.repeat(scales, 16) * np.concatenate(numbers)


@pytest.mark.parametrize(
    ("name", "formula", "size", "per_block"),
    [
        ("Q8_0", q8_0, 34, 32),
        ("Q4_0", q4_0, 18, 32),
        ("Q4_K", q4_k, 144, 256),
        ("Q6_K", q6_k, 210, 256),
    ],
)
def test_quantised_numbers_are_read_by_the_formula(tmp_path, name, formula, size, per_block):
    """Random blocks as the embedding table of an otherwise ordinary file."""
    save_gguf(lm(), tmp_path / "plain.gguf")
    plain, path = gguf.GGUFReader(tmp_path / "plain.gguf"), tmp_path / "model.gguf"
    random = np.random.default_rng(0).integers(0, 256, (260, 256 // per_block, size), np.uint8)
    scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    where = {"Q6_K": [208]}.get(name, [0, 2] if name == "Q4_K" else [0])
    for start in where:
        random[..., start : start + 2] = scale
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("context_length", "block_count", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", plain.get_field(f"llama.{key}").contents())
    writer.add_uint32("llama.embedding_length", 256)
    writer.add_uint32("llama.feed_forward_length", 48)
    kind = gguf.GGMLQuantizationType[name]
    writer.add_tensor("token_embd.weight", random.reshape(260, -1), raw_dtype=kind)
    torch.manual_seed(0)
    model = TransformerLM(260, 32, 256, 2, 4, 48, tied_head=True)
    for key, tensor in GGUF_LLAMA.export_state(model).items():
        if key != "token_embd.weight":
            writer.add_tensor(key, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    loaded = load_gguf(path)  # the keys that the file lacks are optional
    expected = np.stack([formula(block) for block in blocks(random.tobytes(), size)])
    table = loaded.token_embeddings.weight.detach().numpy()
    np.testing.assert_allclose(table, expected.reshape(260, 256), rtol=1e-5, atol=1e-6)
    assert loaded.config.rope_theta == 10_000.0
    assert loaded.config.num_kv_heads == loaded.config.num_heads == 4


def rewritten(path, out, change=None, extra=None, drop=()):
    """A copy of a file with other fields or tensors."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    change = dict(change or {})
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key in drop:
            continue
        value = change.pop(key, field.contents())
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        kind = gguf.GGUFValueType.STRING if isinstance(value, str) else field.types[0]
        writer.add_key_value(key, value, kind, sub_type=sub_type)
    for key, value in change.items():
        kind = gguf.GGUFValueType.get_type(value)  # llama.cpp wants its whole numbers unsigned
        unsigned = gguf.GGUFValueType.UINT32
        writer.add_key_value(key, value, unsigned if kind == gguf.GGUFValueType.INT32 else kind)
    for tensor in reader.tensors:
        if tensor.name not in drop:
            writer.add_tensor(tensor.name, tensor.data)
    for name, numbers in (extra or {}).items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "rotary scaling 'yarn'"),
        ({"llama.expert_count": 8}, r"llama.expert_count is 8, which trafo does not know"),
        ({"llama.rope.dimension_count": 4}, r"rope.dimension_count is 4, the head size is 8"),
        ({"llama.block_count": "two"}, r"llama.block_count is 'two'"),
        ({"llama.block_count": 1}, r"does not know the tensor 'blk.1"),
        ({"llama.block_count": 10**9}, "layers, but only 21 tensors"),
        ({"llama.block_count": 0}, r"model.gguf: num_layers is 0; it must be at least 1"),
        ({"llama.embedding_length": 64}, "does not fit this model|is 4, the head size|is 8, the"),
    ],
)
def test_fields_that_we_cannot_obey_are_refused(tmp_path, change, message):
    save_gguf(lm(), tmp_path / "plain.gguf")
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", change)
    with pytest.raises(FormatError, match=message):
        load_gguf(path)


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        ({}, "tokens", "0 tokens do not fit the token types"),
        ({"tokenizer.ggml.token_type": 3}, "token_type", "260 tokens do not fit the token types"),
        ({}, "token_type", r"the character '\[' is not|the character ' ' is not in GPT-2's byte"),
        ({}, "merges", "tokens, but no merges that make them"),
        (
            {"tokenizer.ggml.bos_token_id": 999, "tokenizer.ggml.add_bos_token": True},
            "",
            "the begin token is 999, which is not an id",
        ),
    ],
)
def test_a_tokenizer_that_lacks_something_is_refused(tmp_path, change, drop, message):
    save_gguf(lm(), tmp_path / "plain.gguf", tokenizer=BYTES)
    keys = (f"tokenizer.ggml.{drop}",)
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", change, drop=keys)
    with pytest.raises(FormatError, match=rf"model.gguf: its tokenizer: .*{message}"):
        load_tokenizer(path)


def test_a_rotary_scaling_of_its_own_is_refused(tmp_path):
    save_gguf(lm(), tmp_path / "plain.gguf")
    extra = {"rope_freqs.weight": np.array([1, 2, 1, 3], np.float32)}
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", extra=extra)
    with pytest.raises(FormatError, match=r"rope_freqs.weight holds a rotary scaling of its own"):
        load_gguf(path)
    save_gguf(MODELS["llama-3.1"](), tmp_path / "scaled.gguf")
    change = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}  # as well
    path = rewritten(tmp_path / "scaled.gguf", tmp_path / "twice.gguf", change)
    with pytest.raises(FormatError, match=r"rope_freqs.weight holds a rotary scaling of its own"):
        load_gguf(path)


def test_biases_on_the_output_are_read_if_they_are_zero(tmp_path):
    """As llama.cpp writes them for a Hugging Face folder of ours."""
    save_gguf(MODELS["llama-biases"](), tmp_path / "plain.gguf")
    extra = {f"blk.{i}.attn_output.bias": np.zeros(32, np.float32) for i in range(2)}
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", extra=extra)
    assert load_gguf(path).config.qkv_bias
    extra["blk.1.attn_output.bias"][3] = 0.1
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "other.gguf", extra=extra)
    with pytest.raises(FormatError, match="biases on the output of attention"):
        load_gguf(path)


def test_llama_3_1_scaling_by_its_own_description(tmp_path):
    """Long waves are divided by the factor, short ones stay: read off the stored tensor."""
    model = TransformerLM(
        *(260, 512, 128, 1, 2, 48, 500_000.0),
        num_kv_heads=2,
        rope_scaling="llama3",
        rope_factor=8.0,
    )
    save_gguf(model, tmp_path / "model.gguf")
    (stored,) = (
        t.data for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors if "rope_freqs" in t.name
    )
    lengths = 2 * np.pi * 500_000.0 ** (np.arange(0, 64, 2) / 64)
    assert (stored[lengths < 8192 / 4] == 1).all()
    np.testing.assert_allclose(stored[lengths > 8192], 8.0)
    between = stored[(lengths > 8192 / 4) & (lengths < 8192)]
    assert ((between > 1) & (between < 8)).all()
    assert between.size
    assert load_gguf(tmp_path / "model.gguf").config == model.config


def test_tensors_that_we_do_not_know_are_refused(tmp_path):
    save_gguf(lm(), tmp_path / "plain.gguf")
    extra = {"rope_other.weight": np.ones(4, np.float32)}
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", extra=extra)
    with pytest.raises(FormatError, match=r"model.gguf: trafo does not know the tensor 'rope_oth"):
        load_gguf(path)
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "less.gguf", drop=["output_norm.weight"])
    with pytest.raises(FormatError, match=r"no tensor 'output_norm.weight'"):
        load_gguf(path)


def test_what_is_no_gguf_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not at all" * 10)
    with pytest.raises(FormatError, match="not a GGUF file"):
        load_gguf(path)
    save_gguf(lm(), path, tokenizer=BYTES)
    whole = path.read_bytes()
    for size in (5, 30, 100, 1000, 5000, len(whole) - 100):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="not a GGUF file, or damaged"):
            load_gguf(path)


@pytest.mark.timeout(60)
def test_a_list_that_is_longer_than_its_file_is_refused(tmp_path):
    """Not read for ever: after the end, every string of it would be empty."""
    path = tmp_path / "model.gguf"
    save_gguf(lm(), path, tokenizer=BYTES)
    content = bytearray(path.read_bytes())
    key = b"tokenizer.ggml.tokens"
    length = content.index(key) + len(key) + 8  # after the types of the field and of its entries
    content[length : length + 8] = (2**60).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(FormatError, match="damaged"):
        load_gguf(path)
