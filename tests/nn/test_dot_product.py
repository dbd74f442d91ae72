import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from trafo.nn import Dropout, attention, attention_weights, scaled_dot_product_attention

leading_shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


def formula(q, k, v, mask=None):
    """softmax(Q K^T / sqrt(d)) V row by row in float64, empty rows zero."""
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v.double()


@settings(max_examples=30, deadline=None)
@given(
    leading_shapes,
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([None, 0.0, 0.3, 0.8]),
)
def test_attention_equals_the_formula(leading, queries, keys, d_k, d_v, masked_share):
    q, k = torch.randn(*leading, queries, d_k), torch.randn(*leading, keys, d_k)
    v = torch.randn(*leading, keys, d_v)
    mask = None if masked_share is None else torch.rand(*leading, queries, keys) >= masked_share
    result = scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(result.double(), formula(q, k, v, mask), atol=1e-5, rtol=1e-5)


def test_attention_gradients_equal_the_formula(agree):
    mask = torch.rand(2, 1, 4, 6) > 0.4
    mask[..., 0] = True
    inputs = [torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8), torch.randn(2, 3, 6, 5)]
    agree(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, mask),
        lambda q, k, v: formula(q, k, v, mask),
        inputs,
    )


@pytest.mark.parametrize("kernel", ["readable", "fused"])
def test_a_row_with_nothing_to_see_gives_zeros_and_clean_gradients(kernel):
    q, k, v = (torch.randn(2, 1, 3, 4, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[1, 0, 1] = False
    out = attention(q, k, v, mask=mask, kernel=kernel)
    assert torch.equal(out[1, 0, 1], torch.zeros(4))
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert torch.equal(q.grad[1, 0, 1], torch.zeros(4))


@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e8])
def test_attention_survives_large_and_tiny_scores(scale):
    q, k, v = torch.randn(2, 5, 8) * scale, torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    result = scaled_dot_product_attention(q, k, v)
    # Scores of size 1,000 are known to 1e-4 in float32, and so are the weights.
    torch.testing.assert_close(result.double(), formula(q, k, v), atol=2e-3, rtol=1e-3)


def test_attention_does_not_look_at_masked_infinities():
    q, k, v = torch.randn(3, 2, 4).unbind()
    k = torch.cat([k, torch.full((1, 4), math.inf)])
    v = torch.cat([v, torch.full((1, 4), 5.0)])
    mask = torch.tensor([True, True, False]).expand(2, 3)
    result = scaled_dot_product_attention(q, k, v, mask)
    assert torch.equal(result, scaled_dot_product_attention(q, k[:2], v[:2]))


def test_bfloat16_attention_is_as_good_as_its_inputs():
    q, k, v = (torch.randn(2, 64, 16).bfloat16() for _ in range(3))
    result = scaled_dot_product_attention(q, k, v)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.double(), formula(q, k, v), atol=1e-2, rtol=1e-2)


def test_weights_sum_to_one_or_nothing():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    weights = attention_weights(torch.randn(2, 4), torch.randn(3, 4), mask)
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, 0.0]))
    assert torch.equal(weights == 0, ~mask)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("masking", ["none", "causal", "padding", "both"])
def test_fused_kernel_equals_the_readable_one(agree, kv_heads, masking):
    q = torch.randn(2, 6, 9, 8)
    k, v = torch.randn(2, kv_heads, 9, 8), torch.randn(2, kv_heads, 9, 8)
    padding = torch.ones(2, 1, 1, 9, dtype=torch.bool)
    padding[1, ..., 6:] = False
    options = {
        "none": {},
        "causal": {"causal": True},
        "padding": {"mask": padding},
        "both": {"mask": padding, "causal": True},
    }[masking]
    agree(
        lambda q, k, v: attention(q, k, v, kernel="readable", **options),
        lambda q, k, v: attention(q, k, v, kernel="fused", **options),
        [q, k, v],
        atol=2e-6,
    )


def test_groups_of_heads_share_neighbouring_key_heads():
    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    result = attention(q, k, v)
    for head in range(4):
        torch.testing.assert_close(
            result[0, head],
            scaled_dot_product_attention(q[0, head], k[0, head // 2], v[0, head // 2]),
        )


@pytest.mark.parametrize("kernel", ["readable", "fused"])
def test_attention_drops_weights_only_in_training(kernel):
    q, k, v = torch.randn(3, 1, 2, 200, 8).unbind()
    dropout = Dropout(0.5)
    plain = attention(q, k, v, kernel=kernel)
    assert not torch.allclose(attention(q, k, v, dropout=dropout, kernel=kernel), plain)
    dropout.eval()
    torch.testing.assert_close(attention(q, k, v, dropout=dropout, kernel=kernel), plain)


def test_asking_for_weights_does_not_change_the_result():
    q, k, v = torch.randn(3, 2, 2, 6, 8).unbind()
    weights = []
    with_weights = attention(q, k, v, causal=True, kernel="fused", weights_out=weights)
    torch.testing.assert_close(with_weights, attention(q, k, v, causal=True, kernel="fused"))
    assert weights[0].shape == (2, 2, 6, 6)
    torch.testing.assert_close(
        weights[0] @ v, functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    )
