"""The fused kernel and its blocks against the readable attention, under every kind of mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from trafo.fast.attention import FusedAttention, windowed_attention
from trafo.nn import HeadsAttention, scaled_dot_product_attention, window_mask


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 4, 9, 20])
def test_fused_attention_equals_the_readable_one(assert_agree, kv_heads, padded, causal, window):
    q = torch.randn(2, 6, 9, 8).double()
    k, v = torch.randn(2, 2, kv_heads, 9, 8).double()
    mask = None
    if padded:
        mask = torch.ones(2, 1, 1, 9, dtype=torch.bool)
        mask[1, ..., 6:] = False
    options = {"causal": causal, "window": window}
    assert_agree(
        lambda q, k, v: FusedAttention(**options)(q, k, v, mask),
        lambda q, k, v: HeadsAttention(**options)(q, k, v, mask),
        [q, k, v],
        atol=1e-13,
    )


@pytest.mark.parametrize("hidden_row", [False, True])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (True, 3)])
def test_attention_with_dropout_equals_the_readable_one(assert_agree, causal, window, hidden_row):
    q = torch.randn(2, 6, 9, 8).double()
    k, v = torch.randn(2, 2, 3, 9, 8).double()
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool)
    mask[1, ..., 0 if hidden_row else 6 :] = False
    options = {"causal": causal, "window": window, "dropout": 0.4}

    def seeded(kind):
        def run(q, k, v):
            torch.manual_seed(3)
            return kind(**options)(q, k, v, mask)

        return run

    assert_agree(seeded(FusedAttention), seeded(HeadsAttention), [q, k, v], atol=1e-13)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.sampled_from([None, 1, 3, 30]),
    st.booleans(),
)
def test_queries_anywhere_among_the_keys(queries, starts, window, padded):
    """As with a KV cache: rows at different places, one or several new tokens."""
    slots = torch.tensor(starts)[:, None] + torch.arange(queries)
    keys = int(slots.max()) + 1
    q, k, v = (torch.randn(3, 2, n, 4).double() for n in (queries, keys, keys))
    mask = torch.rand(3, 1, 1, keys) < 0.7 if padded else None
    options = {"causal": True, "window": window}
    expected = HeadsAttention(**options)(q, k, v, mask, slots)
    torch.testing.assert_close(FusedAttention(**options)(q, k, v, mask, slots), expected)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.integers(1, 20),
    st.integers(1, 24),
    st.booleans(),
)
def test_blocks_equal_masked_attention(leading, seq, window, causal):
    q, k, v = (torch.randn(*leading, seq, 4) for _ in range(3))
    places = torch.arange(seq)
    mask = window_mask(places, places, window, causal=causal)
    expected = scaled_dot_product_attention(q, k, v, mask)
    result = windowed_attention(q, k, v, window, causal=causal)
    torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-5)


def test_the_cost_of_a_window_grows_linearly_with_length():
    def flops(seq):
        q, k, v = torch.randn(3, 1, seq, 8).unbind()
        with FlopCounterMode(display=False) as counter:
            windowed_attention(q, k, v, 16)
        return counter.get_total_flops()

    assert flops(2048) == 8 * flops(256)
    assert flops(2048) == 2 * 2 * 2048 * 32 * 8  # two products with 2 w keys for each query
