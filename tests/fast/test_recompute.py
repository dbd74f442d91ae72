import pytest
import torch
from torch import nn as torch_nn

from trafo.fast import accelerate, recompute
from trafo.fast.layers import _SILU_GATE
from trafo.fast.recompute import recomputed, recomputed_linear
from trafo.nn import FeedForward, LayerNorm, RMSNorm, SwiGLU
from trafo.nn.feed_forward import silu_gate


def formula(x, y, z):
    return torch.tanh(x * y).exp() / (1 + z.square())


def test_numbers_and_gradients_are_the_formulas(assert_agree):
    inputs = [torch.randn(3, 4) for _ in range(3)]
    assert_agree(lambda *xs: recomputed(formula, *xs), formula, inputs, atol=0, rtol=0)


def test_the_product_after_the_formula_too(assert_agree):
    inputs = [torch.randn(5, 4), *(torch.randn(2, 3, 4) for _ in range(3))]

    def plain(weight, *xs):
        return formula(*xs) @ weight.T

    assert_agree(
        lambda w, *xs: recomputed_linear(formula, w, *xs), plain, inputs, atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("block_numbers", [1, 4, 12, 20, 1000])
@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3), (0,)])
def test_blocks_of_rows_change_nothing(assert_agree, monkeypatch, block_numbers, lead):
    monkeypatch.setattr(recompute, "_BLOCK_NUMBERS", block_numbers)
    inputs = [torch.randn(5, 4), *(torch.randn(*lead, 4) for _ in range(3))]

    def plain(weight, *xs):
        return formula(*xs) @ weight.T

    assert_agree(
        lambda w, *xs: recomputed_linear(formula, w, *xs), plain, inputs, atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("block_numbers", [1, 12, 1000])
@pytest.mark.parametrize("lead", [(), (7,), (2, 3), (0,)])
def test_silu_gates_own_gradient_is_autograds(assert_agree, monkeypatch, block_numbers, lead):
    monkeypatch.setattr(recompute, "_BLOCK_NUMBERS", block_numbers)
    inputs = [torch.randn(5, 4, dtype=torch.float64), *torch.randn(2, *lead, 4).double()]

    def plain(weight, *xs):
        return silu_gate(*xs) @ weight.T

    def ours(weight, *xs):
        return recomputed_linear(silu_gate, weight, *xs, steps=_SILU_GATE)

    assert_agree(ours, plain, inputs, atol=1e-14, rtol=1e-12)
    assert_agree(ours, plain, [x.float() for x in inputs], atol=1e-6, rtol=1e-5)


def test_silu_gate_of_a_frozen_input_or_of_mixed_types():
    weight, gate, value = torch.randn(5, 4), torch.randn(3, 4), torch.randn(3, 4)
    gate.requires_grad_()
    recomputed_linear(silu_gate, weight, gate, value, steps=_SILU_GATE).sum().backward()
    expected = torch.autograd.grad((silu_gate(gate, value) @ weight.T).sum(), gate)[0]
    torch.testing.assert_close(gate.grad, expected)
    value = value.bfloat16().requires_grad_()
    recomputed_linear(silu_gate, weight, gate, value, steps=_SILU_GATE).sum().backward()
    assert value.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("lead", [(), (7,), (2, 3), (0,)])
def test_rms_norms_own_gradient_is_autograds(assert_agree, lead):
    x, gain = torch.randn(*lead, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    plain, fast = RMSNorm(6, dtype=torch.float64), accelerate(RMSNorm(6, dtype=torch.float64))

    def with_gain(layer):
        return lambda x, gain: torch.func.functional_call(layer, {"weight": gain}, x)

    assert_agree(with_gain(fast), with_gain(plain), [x, gain], atol=1e-14, rtol=1e-12)


def test_gradients_written_by_hand_can_be_asked_for_twice():
    x = torch.randn(3, 8, requires_grad=True)
    out = accelerate(SwiGLU(8, 16))(accelerate(RMSNorm(8))(x)).sum()
    first, second = (torch.autograd.grad(out, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("learning", ["weight", "input"])
def test_one_side_of_the_product_may_be_frozen(learning):
    weight = torch.randn(5, 4, requires_grad=learning == "weight")
    x = torch.randn(3, 4, requires_grad=learning == "input")
    recomputed_linear(torch.tanh, weight, x).sum().backward()
    assert (weight.grad is not None) == (learning == "weight")
    assert (x.grad is not None) == (learning == "input")


def test_inputs_without_gradient_get_none():
    x, y, z = torch.randn(3), torch.randn(3, requires_grad=True), torch.randn(3)
    recomputed(formula, x, y, z).sum().backward()
    assert y.grad is not None
    assert x.grad is None


@pytest.mark.parametrize(
    ("layer", "floats_per_number"),
    [
        (RMSNorm(64), 1),  # x
        (LayerNorm(64), 1 + 2 / 64),  # x, and mean and scale of each row
        (SwiGLU(64, 128), 1 + 2 * 2),  # x, and at twice the width: gate and value
        (FeedForward(64, 128, "gelu_tanh"), 1 + 2),  # x, and what goes into the activation
    ],
    ids=lambda p: type(p).__name__ if isinstance(p, torch_nn.Module) else "",
)
def test_only_inputs_are_kept_for_the_backward_pass(layer, floats_per_number):
    accelerate(layer)
    x = torch.randn(500, 64, requires_grad=True)
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = layer(x)
    assert sum(kept.values()) == floats_per_number * x.numel() * 4
    out.sum().backward()
