import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from trafo.errors import ConfigError
from trafo.nn import (
    MultiHeadSelfAttention,
    RotaryPositionalEmbedding,
    scaled_dot_product_attention,
    window_mask,
    windowed_attention,
)


def band(seq, window, causal):
    places = torch.arange(seq)
    return window_mask(places, places, window, causal=causal)


@pytest.mark.parametrize("causal", [True, False])
def test_window_mask_says_how_near_and_not_ahead(causal):
    expected = [
        [(0 <= i - j < 3) if causal else (abs(i - j) < 3) for j in range(6)] for i in range(6)
    ]
    assert band(6, 3, causal).tolist() == expected


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.integers(1, 20),
    st.integers(1, 24),
    st.booleans(),
)
def test_windowed_equals_masked_attention(leading, seq, window, causal):
    q, k, v = (torch.randn(*leading, seq, 4) for _ in range(3))
    expected = scaled_dot_product_attention(q, k, v, band(seq, window, causal))
    result = windowed_attention(q, k, v, window, causal=causal)
    torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-5)


def test_windowed_gradients_equal_masked_attention(agree):
    inputs = [torch.randn(2, 11, 4) for _ in range(3)]
    agree(
        lambda q, k, v: windowed_attention(q, k, v, 3),
        lambda q, k, v: scaled_dot_product_attention(q, k, v, band(11, 3, True)),
        inputs,
    )


def test_windowed_respects_padding():
    q, k, v = (torch.randn(2, 10, 4) for _ in range(3))
    real = torch.ones(2, 10, dtype=torch.bool)
    real[1, 6:] = False
    mask = band(10, 4, False) & real[:, None, :]
    expected = scaled_dot_product_attention(q, k, v, mask)
    result = windowed_attention(q, k, v, 4, causal=False, key_mask=real)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("kernel", ["readable", "fused"])
@pytest.mark.parametrize("causal", [True, False])
def test_module_with_a_window_equals_its_masked_self(kernel, causal):
    rope = RotaryPositionalEmbedding(100.0, 4, 50)
    options = {"rope": rope, "num_kv_heads": 1, "causal": causal, "window": 3, "kernel": kernel}
    layer = MultiHeadSelfAttention(8, 2, **options)
    x = torch.randn(2, 11, 8)
    padding = torch.ones(2, 1, 1, 11, dtype=torch.bool)
    padding[1, ..., 8:] = False
    for mask in (None, padding):
        weights = []
        masked = layer(x, key_mask=mask, weights_out=weights)  # all weights: the full matrix
        torch.testing.assert_close(layer(x, key_mask=mask), masked, atol=1e-6, rtol=1e-5)
        assert not weights[0][..., ~band(11, 3, causal)].any()


def test_a_window_over_everything_is_full_attention():
    full, wide = MultiHeadSelfAttention(8, 2), MultiHeadSelfAttention(8, 2, window=9)
    wide.load_state_dict(full.state_dict())
    x = torch.randn(2, 9, 8)
    assert torch.equal(full(x), wide(x))


def test_cost_grows_linearly_with_length():
    def flops(seq):
        q, k, v = torch.randn(3, 1, seq, 8).unbind()
        with FlopCounterMode(display=False) as counter:
            windowed_attention(q, k, v, 16)
        return counter.get_total_flops()

    assert flops(2048) == 8 * flops(256)
    assert flops(2048) == 2 * 2 * 2048 * 32 * 8  # two products with 2 w keys for each query


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="window is 0"):
        windowed_attention(*torch.randn(3, 4, 2).unbind(), 0)
