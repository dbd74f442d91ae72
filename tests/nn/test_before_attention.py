"""Kernel pooling, additive attention and the recurrent unit."""

import math

import pytest
import torch

from trafo.models import record_attention
from trafo.nn import (
    AdditiveAttention,
    GRUCell,
    NadarayaWatson,
    average_pooling,
    kernel_weights,
    nadaraya_watson,
    run_gru,
)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_additive_attention_equals_a_loop_over_pairs(leading):
    layer = AdditiveAttention(d_query=5, d_key=3, d_hidden=7)
    query, key = torch.randn(*leading, 4, 5), torch.randn(*leading, 6, 3)
    value = torch.randn(*leading, 6, 2)
    mask = torch.rand(*leading, 4, 6) > 0.4
    mask[..., 0, :] = False
    scores = torch.empty(*leading, 4, 6, dtype=torch.float64)
    for i in range(4):
        for j in range(6):
            hidden = (
                query[..., i, :] @ layer.q_proj.weight.T + key[..., j, :] @ layer.k_proj.weight.T
            )
            scores[..., i, j] = (hidden.double().tanh() * layer.score.weight[0].double()).sum(-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1).nan_to_num(0.0)
    result = layer(query, layer.k_proj(key), value, mask)
    torch.testing.assert_close(result.double(), weights @ value.double(), atol=1e-6, rtol=1e-5)
    assert not result[..., 0, :].any()


def test_additive_attention_learns_every_part():
    layer = AdditiveAttention(5, 3, 7)
    query, key, value = torch.randn(2, 4, 5), torch.randn(2, 6, 3), torch.randn(2, 6, 2)
    with record_attention(layer) as weights:
        out = layer(query, layer.k_proj(key), value)
    out.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())
    torch.testing.assert_close(weights[""][0].sum(-1), torch.ones(2, 4))


def test_kernel_pooling_equals_the_textbook_ratio():
    query, key, value = torch.randn(2, 5), torch.randn(2, 8), torch.randn(2, 8, 3)
    gauss = torch.exp(-0.5 * ((query[..., None] - key[:, None, :]).double() * 1.7) ** 2)
    expected = (gauss @ value.double()) / gauss.sum(-1, keepdim=True)
    result = nadaraya_watson(query, key, value, inverse_width=1.7)
    torch.testing.assert_close(result.double(), expected, atol=1e-6, rtol=1e-5)


def test_far_queries_still_find_the_nearest_key():
    """exp(-distance^2) underflows in the textbook ratio; softmax does not."""
    weights = kernel_weights(torch.tensor([1e3]), torch.tensor([0.0, 1.0, 2.0]))
    assert weights.argmax() == 2
    assert weights.isfinite().all()


def test_without_width_kernel_pooling_is_the_average():
    query, key, value = torch.randn(5), torch.randn(8), torch.randn(8, 3)
    flat = nadaraya_watson(query, key, value, inverse_width=0.0)
    torch.testing.assert_close(flat, average_pooling(query, key, value))
    torch.testing.assert_close(flat[0], value.mean(0))


def test_learned_width_fits_better_than_width_one():
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 5, 50)
    y = 2 * torch.sin(x) + 0.2 * torch.randn(50, generator=generator)
    # Leave each point out of its own prediction, or the narrowest kernel would win.
    others = torch.stack([torch.cat([x[:i], x[i + 1 :]]) for i in range(50)])
    answers = torch.stack([torch.cat([y[:i], y[i + 1 :]]) for i in range(50)])[..., None]
    pool = NadarayaWatson()
    errors = []
    for _ in range(40):
        error = (pool(x[:, None], others, answers)[:, 0, 0] - y).square().mean()
        (gradient,) = torch.autograd.grad(error, [pool.inverse_width])
        with torch.no_grad():
            pool.inverse_width -= 5.0 * gradient
        errors.append(error.item())
    assert errors[-1] < 0.7 * errors[0]


def test_gru_cell_equals_torch(assert_agree):
    ours, theirs = GRUCell(5, 7), torch.nn.GRUCell(5, 7)
    with torch.no_grad():
        for mine, other in [
            (ours.input_proj.weight, theirs.weight_ih),
            (ours.hidden_proj.weight, theirs.weight_hh),
            (ours.input_proj.bias, theirs.bias_ih),
            (ours.hidden_proj.bias, theirs.bias_hh),
        ]:
            mine.copy_(other)
    assert_agree(ours, theirs, [torch.randn(3, 5), torch.randn(3, 7)])


@pytest.mark.parametrize("reverse", [False, True])
def test_padding_leaves_the_recurrent_state_alone(reverse):
    cell, x = GRUCell(5, 7), torch.randn(2, 6, 5)
    real = torch.ones(2, 6, dtype=torch.bool)
    real[1, 4:] = False
    states = run_gru(cell, x, real, reverse=reverse)
    alone = run_gru(cell, x[1:, :4], real[1:, :4], reverse=reverse)
    torch.testing.assert_close(states[1:, :4], alone)
