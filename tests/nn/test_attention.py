"""Attention against its formula, a loop over heads, and torch's own modules."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import ConfigError
from trafo.fast import accelerate
from trafo.fast.accelerate import FAST
from trafo.models import record_attention
from trafo.nn import (
    HeadsAttention,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    RotaryPositionalEmbedding,
    SingleHeadAttention,
    attention_weights,
    look_ahead_mask,
    padding_mask,
    scaled_dot_product_attention,
    window_mask,
)

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


def test_attention_gradients_equal_the_formula(assert_agree):
    mask = torch.rand(2, 1, 4, 6) > 0.4
    mask[..., 0] = True
    inputs = [torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8), torch.randn(2, 3, 6, 5)]
    assert_agree(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, mask),
        lambda q, k, v: formula(q, k, v, mask),
        inputs,
    )


@pytest.mark.parametrize("speed", [HeadsAttention, FAST[HeadsAttention]])
def test_a_row_with_nothing_to_see_gives_zeros_and_clean_gradients(speed):
    q, k, v = (torch.randn(2, 1, 3, 4, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[1, 0, 1] = False
    out = speed()(q, k, v, mask)
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


def test_groups_of_heads_share_neighbouring_key_heads():
    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    result = HeadsAttention()(q, k, v)
    for head in range(4):
        torch.testing.assert_close(
            result[0, head],
            scaled_dot_product_attention(q[0, head], k[0, head // 2], v[0, head // 2]),
        )


@pytest.mark.parametrize("speed", [HeadsAttention, FAST[HeadsAttention]])
def test_attention_drops_weights_only_in_training(speed):
    q, k, v = torch.randn(3, 1, 2, 200, 8).unbind()
    plain = speed()(q, k, v)
    dropping = speed(dropout=0.5)
    assert not torch.allclose(dropping(q, k, v), plain)
    torch.testing.assert_close(dropping.eval()(q, k, v), plain)


def torch_twin(ours: MultiHeadAttention, d_model: int) -> torch.nn.MultiheadAttention:
    """torch's module with our weights."""
    bias = ours.q_proj.bias is not None
    twin = torch.nn.MultiheadAttention(d_model, ours.num_heads, bias=bias, batch_first=True)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        twin.out_proj.weight.copy_(ours.output_proj.weight)
        if bias:
            for projection in (*projections, ours.output_proj):
                projection.bias.normal_()
            twin.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
            twin.out_proj.bias.copy_(ours.output_proj.bias)
    return twin


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_cross_attention_equals_torch(assert_agree, bias, heads):
    ours = MultiHeadAttention(12, heads, bias=bias)
    theirs = torch_twin(ours, 12)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    mask = padding_mask(real, 0)
    assert_agree(
        lambda q, k, v: ours(q, k, v, mask),
        lambda q, k, v: theirs(q, k, v, key_padding_mask=real == 0)[0],
        [torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.randn(2, 5, 12)],
    )


def test_causal_self_attention_equals_torch(assert_agree):
    ours = MultiHeadSelfAttention(12, 4)
    theirs = torch_twin(ours, 12)
    assert_agree(
        ours,
        lambda x: theirs(x, x, x, attn_mask=~look_ahead_mask(6))[0],
        [torch.randn(3, 6, 12)],
    )


@pytest.mark.parametrize("speed", [lambda layer: layer, accelerate])
def test_recorded_weights_equal_torch(speed):
    ours = speed(MultiHeadAttention(12, 3))
    q, k = torch.randn(2, 4, 12), torch.randn(2, 5, 12)
    with record_attention(ours) as weights:
        ours(q, k, k)
    expected = torch_twin(ours, 12)(q, k, k, average_attn_weights=False)[1]
    torch.testing.assert_close(weights["attention"][0], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_rope_heads_and_grouping_equal_a_loop_over_heads(kv_heads):
    rope = RotaryPositionalEmbedding(100.0, 6, 50)
    layer = MultiHeadSelfAttention(24, 4, rope=rope, num_kv_heads=kv_heads)
    x, places = torch.randn(2, 7, 24), torch.randint(50, (2, 7))
    parts = []
    for head in range(4):
        own, shared = slice(6 * head, 6 * head + 6), head * kv_heads // 4
        served = slice(6 * shared, 6 * shared + 6)
        q = rope(x @ layer.q_proj.weight[own].T, places)
        k = rope(x @ layer.k_proj.weight[served].T, places)
        v = x @ layer.v_proj.weight[served].T
        parts.append(scaled_dot_product_attention(q, k, v, look_ahead_mask(7)))
    expected = torch.cat(parts, -1) @ layer.output_proj.weight.T
    torch.testing.assert_close(layer(x, places), expected, atol=1e-5, rtol=1e-4)


def test_qk_norm_makes_scores_blind_to_size():
    layer = MultiHeadSelfAttention(12, 2, qk_norm=True)
    x = torch.randn(1, 5, 12)
    with record_attention(layer) as weights:
        layer(x)
        layer(x * 50)
    torch.testing.assert_close(*weights["attention"], atol=1e-4, rtol=1e-3)


def test_single_head_equals_its_formula():
    layer = SingleHeadAttention(8, d_k=5, d_v=3)
    query, other = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8)
    expected = scaled_dot_product_attention(
        query @ layer.q_proj.weight.T, other @ layer.k_proj.weight.T, other @ layer.v_proj.weight.T
    )
    torch.testing.assert_close(layer(query, other, other), expected)


def test_bfloat16_comes_back_as_bfloat16():
    rope = RotaryPositionalEmbedding(100.0, 6, 50)
    layer = MultiHeadSelfAttention(12, 2, rope=rope, qk_norm=True).bfloat16()
    assert layer(torch.randn(1, 5, 12).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("d_model", "heads", "kv_heads", "message"),
    [
        (10, 3, None, "d_model 10 is not divisible by num_heads 3"),
        (12, 4, 3, "num_kv_heads 3 does not divide num_heads 4"),
        (12, 0, None, "d_model 12 is not divisible by num_heads 0"),
    ],
)
def test_heads_that_do_not_fit_are_named(d_model, heads, kv_heads, message):
    with pytest.raises(ConfigError, match=message):
        MultiHeadSelfAttention(d_model, heads, num_kv_heads=kv_heads)


def band(seq, window, causal):
    return [
        [(i - j >= 0 if causal else True) and abs(i - j) < window for j in range(seq)]
        for i in range(seq)
    ]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 3, 9, 50])
def test_a_window_is_full_attention_under_its_mask(window, causal):
    q, k, v = torch.randn(3, 2, 2, 9, 4).unbind()
    mask = torch.tensor(band(9, window, causal))
    assert window_mask(torch.arange(9), torch.arange(9), window, causal=causal).equal(mask)
    result = HeadsAttention(causal=causal, window=window)(q, k, v)
    torch.testing.assert_close(result, scaled_dot_product_attention(q, k, v, mask))


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="window is 0"):
        HeadsAttention(window=0)
