import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.nn import Embedding, Linear, truncated_normal_

leading_shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@settings(max_examples=25, deadline=None)
@given(leading_shapes, st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_linear_equals_torch(assert_agree, leading, d_in, d_out, bias):
    ours, theirs = Linear(d_in, d_out, bias=bias), torch.nn.Linear(d_in, d_out, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    assert_agree(ours, theirs, [torch.randn(*leading, d_in)])


def test_linear_gradients_of_its_weights_equal_torch():
    ours, theirs = Linear(5, 3, bias=True), torch.nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 5)
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


@settings(max_examples=25, deadline=None)
@given(leading_shapes, st.integers(1, 30), st.integers(1, 9))
def test_embedding_equals_torch(leading, num_embeddings, size):
    ours, theirs = Embedding(num_embeddings, size), torch.nn.Embedding(num_embeddings, size)
    theirs.load_state_dict(ours.state_dict())
    ids = torch.randint(num_embeddings, leading)
    upstream = torch.randn(*leading, size)
    for layer in (ours, theirs):
        (layer(ids) * upstream).sum().backward()
    torch.testing.assert_close(ours(ids), theirs(ids))
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_linear_starts_with_the_named_distribution():
    weight = Linear(400, 600).weight
    sigma = math.sqrt(2 / 1000)
    # A normal cut at 3 sigma keeps 0.9733 of its variance.
    assert weight.std().item() == pytest.approx(sigma * math.sqrt(0.97334), rel=0.01)
    assert abs(weight.mean().item()) < sigma / 100
    assert 2.9 * sigma < weight.abs().max().item() <= 3 * sigma * (1 + 1e-6)


def test_embedding_starts_normal_cut_at_three():
    weight = Embedding(1000, 300).weight
    assert weight.std().item() == pytest.approx(math.sqrt(0.97334), rel=0.01)
    assert 2.9 < weight.abs().max().item() <= 3


def test_cut_normal_has_the_quantiles_of_the_normal():
    draw = truncated_normal_(torch.empty(400_000), std=2.0, cut=3.0)
    inside_one_sigma = (draw.abs() < 2.0).double().mean().item()
    assert inside_one_sigma == pytest.approx(0.682689 / 0.997300, abs=0.005)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtype_is_kept_from_weights_to_result(dtype):
    layer = Linear(8, 4, dtype=dtype, bias=True)
    table = Embedding(10, 8, dtype=dtype)
    assert torch.isfinite(table.weight).all()
    assert layer(table(torch.tensor([1, 2]))).dtype == dtype
