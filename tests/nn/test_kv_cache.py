import pytest
import torch

from trafo.errors import InputError
from trafo.nn import KVCache, MultiHeadSelfAttention, RotaryPositionalEmbedding


def make(window=None, kernel="readable"):
    rope = RotaryPositionalEmbedding(100.0, 4, 32)
    layer = MultiHeadSelfAttention(
        16, 4, rope=rope, num_kv_heads=2, window=window, kernel=kernel
    ).eval()
    return layer, KVCache(1, batch=3, num_kv_heads=2, capacity=12, d_head=4)


def call(layer, cache, x, counts=None):
    step = cache.begin(x.shape[1], counts, layer.window)
    out = layer(x, step.positions, cache=step.layer(0))
    step.finish()
    return out


@pytest.mark.parametrize("kernel", ["readable", "fused"])
@pytest.mark.parametrize("window", [None, 3])
def test_pieces_equal_the_whole(window, kernel):
    layer, cache = make(window, kernel)
    x = torch.randn(3, 12, 16)
    pieces = [call(layer, cache, piece) for piece in x.split([5, 1, 1, 4, 1], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), layer(x), atol=1e-6, rtol=1e-5)
    assert cache.lengths.tolist() == [12, 12, 12]


@pytest.mark.parametrize("kernel", ["readable", "fused"])
@pytest.mark.parametrize("window", [None, 3])
def test_rows_of_different_lengths(window, kernel):
    """Prompts of 2, 5 and 4 tokens padded to 5, then two steps together, then one row rests."""
    layer, cache = make(window, kernel)
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
    assert cache.batch == 4
    assert cache.lengths.tolist() == [4, 4, 2, 1]
    out = call(layer, cache, rows[order, cache.lengths][:, None])
    expected = layer(rows)[order, torch.tensor([4, 4, 2, 1])]
    torch.testing.assert_close(out[:, 0], expected, atol=1e-6, rtol=1e-5)


def test_too_many_tokens_are_refused_in_one_line():
    _, cache = make()
    with pytest.raises(InputError, match="holds 12 tokens a row, this step would make it 13"):
        cache.begin(13)
