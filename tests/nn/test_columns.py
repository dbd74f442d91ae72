"""Without gradients products have tokens as columns: the same numbers as with gradients."""

import pytest
import torch

from trafo.models import TransformerLM
from trafo.nn import MANY_ROWS, SwiGLU


@pytest.mark.parametrize("lead", [(MANY_ROWS,), (2, MANY_ROWS), (3, 5, 7), (MANY_ROWS - 1,), ()])
def test_swiglu(lead):
    torch.manual_seed(0)
    layer = SwiGLU(24, 40)
    x = torch.randn(*lead, 24)
    w1, w2, w3 = (m.weight.double() for m in (layer.w1, layer.w2, layer.w3))
    gate = x.double() @ w1.T
    expected = (gate * gate.sigmoid() * (x.double() @ w3.T)) @ w2.T
    with torch.no_grad():
        got = layer(x)
    assert got.shape == x.shape
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got, layer(x).detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, MANY_ROWS), (3, 50), (2, 5)])
def test_logits(shape):
    torch.manual_seed(0)
    model = TransformerLM(61, MANY_ROWS, 24, 1, 2)
    ids = torch.randint(61, shape)
    with torch.no_grad():
        got = model(ids)
    expected = model(ids).detach()
    assert got.shape == (*shape, 61)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert got.argmax(-1).equal(expected.argmax(-1))
