import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.fast import accelerate
from trafo.nn import KVCache, MultiHeadSelfAttention, RotaryPositionalEmbedding


def make(window=None, fast=False):
    rope = RotaryPositionalEmbedding(100.0, 4, 32)
    layer = MultiHeadSelfAttention(16, 4, rope=rope, num_kv_heads=2, window=window).eval()
    return accelerate(layer) if fast else layer, KVCache(
        1, batch=3, num_kv_heads=2, capacity=12, d_head=4
    )


def call(layer, cache, x, counts=None, key_mask=None):
    step = cache.begin(x.shape[1], counts)
    out = layer(x, step.positions, cache=step.layer(0), key_mask=key_mask)
    step.finish()
    return out


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_pieces_equal_the_whole(window, fast):
    layer, cache = make(window, fast)
    x = torch.randn(3, 12, 16)
    pieces = [call(layer, cache, piece) for piece in x.split([5, 1, 1, 4, 1], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), layer(x), atol=1e-6, rtol=1e-5)
    assert cache.lengths.tolist() == [12, 12, 12]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_rows_of_different_lengths(window, fast):
    """Prompts of 2, 5 and 4 tokens padded to 5, then two steps together, then one row rests."""
    layer, cache = make(window, fast)
    rows = torch.randn(3, 12, 16)
    whole = layer(rows)
    counts = torch.tensor([2, 5, 4])
    call(layer, cache, rows[:, :5], counts)
    for step_counts in ([1, 1, 1], [1, 1, 1], [1, 0, 1]):
        at = cache.lengths.clone()
        x = rows[torch.arange(3), at][:, None]
        out = call(layer, cache, x, torch.tensor(step_counts))
        expected = whole[torch.arange(3), at]
        torch.testing.assert_close(out[:, 0], expected, atol=1e-6, rtol=1e-5)
    assert cache.lengths.tolist() == [5, 7, 7]


def test_a_full_row_may_rest_while_others_go_on():
    layer, cache = make()
    rows = torch.randn(3, 12, 16)
    call(layer, cache, rows, torch.tensor([12, 3, 7]))
    kept = cache.keys[0, 0, :, :12].clone()
    padded = torch.stack([rows[0, :2], rows[1, 3:5], rows[2, 7:9]])
    out = call(layer, cache, padded, torch.tensor([0, 2, 1]))
    assert torch.equal(cache.keys[0, 0, :, :12], kept)
    torch.testing.assert_close(out[1], layer(rows)[1, 3:5], atol=1e-6, rtol=1e-5)


def test_reorder_moves_whole_rows():
    layer, cache = make()
    rows = torch.randn(3, 12, 16)
    call(layer, cache, rows[:, :4], torch.tensor([1, 4, 2]))
    order = torch.tensor([1, 1, 2, 0])
    cache.reorder(order)
    assert cache.lengths.tolist() == [4, 4, 2, 1]
    out = call(layer, cache, rows[order, cache.lengths][:, None])
    expected = layer(rows)[order, torch.tensor([4, 4, 2, 1])]
    torch.testing.assert_close(out[:, 0], expected, atol=1e-6, rtol=1e-5)


def test_too_many_tokens_are_refused_in_one_line():
    _, cache = make()
    with pytest.raises(InputError, match="holds 12 tokens per row, this step needs 13"):
        cache.begin(13)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 12),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
@torch.no_grad()
def test_a_key_mask_means_the_same_with_a_cache(sizes, window, fast):
    layer, cache = make(window, fast)
    seq = sum(sizes)
    x, real = torch.randn(3, seq, 16), torch.rand(3, 1, 1, seq) < 0.7
    pieces, end = [], 0
    for piece in x.split(sizes, dim=1):
        end += piece.shape[1]
        pieces.append(call(layer, cache, piece, key_mask=real[..., :end]))
    expected = layer(x, key_mask=real)
    torch.testing.assert_close(torch.cat(pieces, 1), expected, atol=1e-6, rtol=1e-5)


def test_a_key_mask_of_another_length_and_both_directions_are_refused():
    layer, cache = make()
    call(layer, cache, torch.randn(3, 4, 16))
    mask = torch.ones(3, 1, 1, 2, dtype=torch.bool)
    with pytest.raises(InputError, match="for 2 keys, with the cache there are 6"):
        call(layer, cache, torch.randn(3, 2, 16), key_mask=mask)
    both = MultiHeadSelfAttention(16, 2, causal=False)
    cache = KVCache(1, batch=3, num_kv_heads=2, capacity=12, d_head=8)
    with pytest.raises(InputError, match="bidirectional attention cannot use a KV cache"):
        both(torch.randn(3, 2, 16), cache=cache.begin(2).layer(0))
