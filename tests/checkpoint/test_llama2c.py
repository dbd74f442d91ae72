"""A trained model in llama2.c's format, and the text that llama2.c prints with it."""

import struct

import numpy as np
import pytest
import torch
from tests.shared import shared

from trafo.checkpoint.convert.llama2c import load_llama2c
from trafo.errors import FormatError
from trafo.fast import accelerate


def read_pieces(path):
    """int32 longest token, then for each token float32 score, int32 length, bytes."""
    data, at, pieces = path.read_bytes(), 4, []
    while at < len(data):
        _, length = struct.unpack_from("<fi", data, at)
        pieces.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return pieces


def to_bytes(ids, pieces):
    text = b""
    for before, i in zip([1, *ids], ids, strict=False):
        piece = pieces[i]
        if before == 1:
            piece = piece.removeprefix(b" ")  # the start token swallows one space
        if piece.startswith(b"<0x") and piece.endswith(b">"):
            piece = bytes([int(piece[3:-1], 16)])
        text += piece
    return text


@torch.no_grad()
def test_greedy_story_is_the_known_one_byte_for_byte():
    """Token by token with a cache, and all at once by the readable model without one."""
    model = load_llama2c(shared("stories260K/stories260K.bin"))
    fast = accelerate(load_llama2c(shared("stories260K/stories260K.bin")))
    ids, cache = [1], fast.make_cache(1)
    for _ in range(200):
        ids.append(int(fast(torch.tensor([ids[-1:]]), cache=cache)[0, -1].argmax()))
    text = to_bytes(ids[1:], read_pieces(shared("stories260K/tok512.bin")))
    assert text == shared("stories260K/expected_greedy.txt").read_bytes()
    assert model(torch.tensor([ids[:-1]]))[0].argmax(-1).tolist() == ids[1:]


@torch.no_grad()
def test_a_cache_changes_nothing_for_the_readable_model():
    model = load_llama2c(shared("stories260K/stories260K.bin"))
    cached, cache = [1], model.make_cache(1)
    for _ in range(20):
        cached.append(int(model(torch.tensor([cached[-1:]]), cache=cache)[0, -1].argmax()))
    logits = model(torch.tensor([cached[:-1]]))
    assert logits[0].argmax(-1).tolist() == cached[1:]


def write(path, vocab=7, extra=b""):
    """dim 8, hidden 12, 1 layer, 2 heads, 1 key/value head, context 5; numbers 0, 1, 2, ..."""
    sizes = [7 * 8, 8, 64, 32, 32, 64, 8, 96, 96, 96, 8, 5 * 4]
    if vocab < 0:
        sizes.append(7 * 8)
    numbers = np.arange(sum(sizes), dtype="<f4")
    path.write_bytes(struct.pack("<7i", 8, 12, 1, 2, 1, vocab, 5) + numbers.tobytes() + extra)
    return sizes


@pytest.mark.parametrize("vocab", [7, -7])
def test_tensors_are_read_from_their_places(tmp_path, vocab):
    sizes = write(tmp_path / "model.bin", vocab)
    model = load_llama2c(tmp_path / "model.bin")
    starts = dict(zip(range(13), np.cumsum([0, *sizes]), strict=False))
    layer = model.layers[0]
    in_order = [model.token_embeddings, layer.ln1, layer.attn.q_proj, layer.attn.k_proj]
    in_order += [layer.attn.v_proj, layer.attn.output_proj, layer.ln2]
    in_order += [layer.ffn.w1, layer.ffn.w2, layer.ffn.w3, model.ln_final]
    for number, part in enumerate(in_order):
        first = float(starts[number])
        expected = torch.arange(first, first + part.weight.numel()).view_as(part.weight)
        assert torch.equal(part.weight, expected)
    assert model.config.tied_head == (vocab > 0)
    if vocab < 0:
        assert model.lm_head.weight[0, 0].item() == starts[12]


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "model.bin"
    write(path, extra=b"more")
    with pytest.raises(FormatError, match="its header asks for"):
        load_llama2c(path)
    path.write_bytes(b"\0" * 100)
    with pytest.raises(FormatError, match="its header makes no sense"):
        load_llama2c(path)
    path.write_bytes(struct.pack("<2i", 0x616B3432, 1))
    with pytest.raises(FormatError, match="a later llama2"):
        load_llama2c(path)
    path.write_bytes(b"x")
    with pytest.raises(FormatError, match="too short"):
        load_llama2c(path)
