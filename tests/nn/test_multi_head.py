import pytest
import torch

from trafo.errors import ConfigError
from trafo.nn import (
    MultiHeadAttention,
    MultiHeadSelfAttention,
    RotaryPositionalEmbedding,
    SingleHeadAttention,
    look_ahead_mask,
    padding_mask,
    scaled_dot_product_attention,
)

KERNELS = ["readable", "fused"]


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


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_cross_attention_equals_torch(agree, kernel, bias, heads):
    ours = MultiHeadAttention(12, heads, bias=bias, kernel=kernel)
    theirs = torch_twin(ours, 12)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    mask = padding_mask(real, 0)
    agree(
        lambda q, k, v: ours(q, k, v, mask),
        lambda q, k, v: theirs(q, k, v, key_padding_mask=real == 0)[0],
        [torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.randn(2, 5, 12)],
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_causal_self_attention_equals_torch(agree, kernel):
    ours = MultiHeadSelfAttention(12, 4, kernel=kernel)
    theirs = torch_twin(ours, 12)
    agree(
        ours,
        lambda x: theirs(x, x, x, attn_mask=~look_ahead_mask(6))[0],
        [torch.randn(3, 6, 12)],
    )


def test_weights_on_request_equal_torch():
    ours = MultiHeadAttention(12, 3, kernel="fused")
    weights = []
    q, k = torch.randn(2, 4, 12), torch.randn(2, 5, 12)
    ours(q, k, k, weights_out=weights)
    expected = torch_twin(ours, 12)(q, k, k, average_attn_weights=False)[1]
    torch.testing.assert_close(weights[0], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_rope_heads_and_grouping_equal_a_loop_over_heads(kernel, kv_heads):
    rope = RotaryPositionalEmbedding(100.0, 6, 50)
    layer = MultiHeadSelfAttention(24, 4, rope=rope, num_kv_heads=kv_heads, kernel=kernel)
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
    small, large = [], []
    layer(x, weights_out=small)
    layer(x * 50, weights_out=large)
    torch.testing.assert_close(small[0], large[0], atol=1e-4, rtol=1e-3)


def test_single_head_equals_its_formula():
    layer = SingleHeadAttention(8, d_k=5, d_v=3)
    query, other = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8)
    expected = scaled_dot_product_attention(
        query @ layer.q_proj.weight.T, other @ layer.k_proj.weight.T, other @ layer.v_proj.weight.T
    )
    torch.testing.assert_close(layer(query, other, other), expected)


def test_bfloat16_comes_back_as_bfloat16():
    rope = RotaryPositionalEmbedding(100.0, 6, 50)
    layer = MultiHeadSelfAttention(12, 2, rope=rope, qk_norm=True, kernel="fused").bfloat16()
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
        MultiHeadAttention(d_model, heads, num_kv_heads=kv_heads)
