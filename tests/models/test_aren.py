"""A trained encoder-decoder, in CTranslate2's format, that spells Arabic names in Latin letters."""

import math
import struct

import pytest
import torch

from trafo.models import EncoderDecoder, EncoderDecoderConfig
from trafo.nn import softmax

START, END = 1, 2


def read_variables(path):
    """CTranslate2 version 2: header, then name, rank, sizes, item size, count and bytes of each."""
    data, at = path.read_bytes(), 0

    def take(code):
        nonlocal at
        (value,) = struct.unpack_from(f"<{code}", data, at)
        at += struct.calcsize(code)
        return value

    def text():
        nonlocal at
        length = take("H")
        at += length
        return data[at - length : at - 1].decode()

    assert take("I") == 2
    text(), take("I")  # the kind of model and its revision
    variables = {}
    for _ in range(take("I")):
        name, sizes = text(), [take("I") for _ in range(take("B"))]
        assert take("B") == 4
        size = 4 * take("I")
        values = torch.frombuffer(bytearray(data[at : at + size]), dtype=torch.float32)
        variables[name] = values.view(sizes or [1])
        at += size
    return variables


def our_state(variables):
    state = {
        "source_embeddings.weight": variables["encoder/embeddings/weight"],
        "target_embeddings.weight": variables["decoder/embeddings/weight"],
    }

    def linear(ours, theirs, rows=slice(None)):
        for part in ("weight", "bias"):
            state[f"{ours}.{part}"] = variables[f"{theirs}/{part}"][rows]

    def norm(ours, theirs):
        state[f"{ours}.weight"] = variables[f"{theirs}/layer_norm/gamma"]
        state[f"{ours}.bias"] = variables[f"{theirs}/layer_norm/beta"]

    def layer(ours, theirs, norms):
        for part, first in (("q", 0), ("k", 32), ("v", 64)):
            rows = slice(first, first + 32)
            linear(f"{ours}.self_attn.{part}_proj", f"{theirs}/self_attention/linear_0", rows)
        linear(f"{ours}.self_attn.output_proj", f"{theirs}/self_attention/linear_1")
        linear(f"{ours}.ffn.w1", f"{theirs}/ffn/linear_0")
        linear(f"{ours}.ffn.w2", f"{theirs}/ffn/linear_1")
        for number, name in enumerate(norms, start=1):
            norm(f"{ours}.ln{number}", f"{theirs}/{name}")

    for i in range(6):
        layer(f"encoder.{i}", f"encoder/layer_{i}", ("self_attention", "ffn"))
        layer(f"decoder.{i}", f"decoder/layer_{i}", ("self_attention", "attention", "ffn"))
        ours, theirs = f"decoder.{i}.cross_attn", f"decoder/layer_{i}/attention"
        linear(f"{ours}.q_proj", f"{theirs}/linear_0")
        linear(f"{ours}.k_proj", f"{theirs}/linear_1", slice(0, 32))
        linear(f"{ours}.v_proj", f"{theirs}/linear_1", slice(32, 64))
        linear(f"{ours}.output_proj", f"{theirs}/linear_2")
    norm("encoder_norm", "encoder")
    norm("decoder_norm", "decoder")
    linear("lm_head", "decoder/projection")
    return state


def its_sinusoids(length, size):
    """Its dialect: counted from 1, all sines before all cosines, the last wave exactly 10,000."""
    waves = torch.exp(-math.log(10_000) / (size // 2 - 1) * torch.arange(size // 2))
    angles = torch.outer(torch.arange(1, length + 1), waves)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


@pytest.fixture
def folder(shared_data):
    return shared_data / "aren"


@pytest.fixture
def aren(folder):
    variables = read_variables(folder / "model.bin")
    model = EncoderDecoder(
        EncoderDecoderConfig(
            source_vocab_size=51,
            target_vocab_size=43,
            context_length=64,
            d_model=32,
            num_heads=8,
            d_ff=128,
            norm_placement="pre",
            attention_bias=True,
            head_bias=True,
        )
    )
    model.load_state_dict(our_state(variables))
    model.positions.table = its_sinusoids(64, 32)
    return model.eval()


def write(model, source, length=20):
    """Greedy, with a cache: the ids after the start and the sum of their log-probabilities."""
    memory, cache = model.encode(source), model.make_cache(1)
    ids, total = [START], 0.0
    while ids[-1] != END and len(ids) < length:
        logits = model.decode(torch.tensor([ids[-1:]]), memory, cache=cache)
        probabilities = softmax(logits[0, -1], dim=-1)
        ids.append(int(probabilities.argmax()))
        total += math.log(probabilities[ids[-1]])
    return ids[1:], total


@torch.no_grad()
@pytest.mark.parametrize(
    ("word", "expected", "score"), [("آتزمون", "atzmon", -0.15167), ("آزا", "azza", -0.1509)]
)
def test_known_names_are_spelt_as_known(aren, folder, word, expected, score):
    letters = (folder / "source_vocabulary.txt").read_text("utf-8").split("\n")
    latin = (folder / "target_vocabulary.txt").read_text("utf-8").split("\n")
    source = torch.tensor([[letters.index(letter) for letter in word]])
    ids, total = write(aren, source)
    assert "".join(latin[i] for i in ids[:-1]) == expected
    assert total / len(ids) == pytest.approx(score, abs=1e-4)
