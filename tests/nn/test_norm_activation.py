import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from trafo.errors import ConfigError
from trafo.nn import (
    ACTIVATIONS,
    Dropout,
    FeedForward,
    LayerNorm,
    RMSNorm,
    SwiGLU,
    default_d_ff,
    dropout_by_row,
    softmax,
)

leading_shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
scales = st.sampled_from([1e-8, 1e-3, 1.0, 1e4, 1e15])
HALVES = [torch.bfloat16, torch.float16]


@settings(max_examples=30, deadline=None)
@given(leading_shapes, st.integers(1, 33), scales)
def test_rms_norm_equals_the_formula_in_float64(leading, size, scale):
    norm = RMSNorm(size)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(*leading, size) * scale
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight.double()
    torch.testing.assert_close(norm(x).double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(RMSNorm, torch.nn.RMSNorm), (LayerNorm, torch.nn.LayerNorm)]
)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3, 4)])
def test_norms_and_gradients_equal_torch(assert_agree, ours, theirs, leading):
    mine, other = ours(16), theirs(16, eps=1e-5)
    for parameter in mine.parameters():
        torch.nn.init.normal_(parameter)
    other.load_state_dict(mine.state_dict())
    assert_agree(mine, other, [torch.randn(*leading, 16) * 3 + 1])


@pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
@pytest.mark.parametrize("dtype", HALVES)
def test_norms_work_in_float32_inside(norm, dtype):
    x = (torch.randn(4, 512) * 300).to(dtype)  # squares overflow float16
    layer = norm(512)
    result = layer.to(dtype)(x)
    assert result.dtype == dtype
    exact = layer.double()(x.double())
    half_a_step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(result.double(), exact, rtol=1.01 * half_a_step, atol=1e-6)


@pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
def test_norm_of_zeros_is_zeros(norm):
    assert torch.equal(norm(8)(torch.zeros(2, 8)), torch.zeros(2, 8))


@pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
def test_norm_does_not_hide_a_nan(norm):
    x = torch.ones(2, 8)
    x[0, 3] = math.nan
    assert norm(8)(x)[0].isnan().all()
    assert norm(8)(x)[1].isfinite().all()


TORCH_ACTIVATIONS = {
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_gradients_equal_torch(assert_agree, name):
    x = torch.cat([torch.linspace(-12, 12, 401), torch.tensor([0.0, 1e4, -1e4, 1e-8])])
    assert_agree(ACTIVATIONS[name], TORCH_ACTIVATIONS[name], [x.view(5, 81)], atol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_non_finite_numbers_equal_torch(name):
    x = torch.tensor([math.inf, -math.inf, math.nan])
    # torch's vectorized gelu gives NaN for infinity on some CPUs; x Phi(x) itself does not.
    reference = {**TORCH_ACTIVATIONS, "gelu": lambda x: x * torch.special.ndtr(x)}[name]
    torch.testing.assert_close(ACTIVATIONS[name](x), reference(x), equal_nan=True)


@settings(max_examples=30, deadline=None)
@given(leading_shapes, st.integers(1, 20), st.sampled_from([1e-6, 1.0, 1e3, 1e30]), st.data())
def test_softmax_equals_torch_at_any_scale(leading, size, scale, data):
    shape = (*leading, size)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = torch.randn(shape) * scale
    torch.testing.assert_close(softmax(x, dim), torch.softmax(x.double(), dim).float())


def test_softmax_gradients_equal_torch(assert_agree):
    assert_agree(lambda x: softmax(x, 1), lambda x: torch.softmax(x, 1), [torch.randn(3, 7, 2)])


def test_softmax_of_non_finite_numbers_equals_torch():
    x = torch.tensor([[1.0, -math.inf, 2.0], [math.nan, 0.0, 1.0], [-math.inf] * 3])
    torch.testing.assert_close(softmax(x, -1), torch.softmax(x, -1), equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_softmax_works_in_float32_inside(dtype):
    x = torch.randn(3, 4096).to(dtype)
    result = softmax(x, -1)
    assert result.dtype == dtype
    exact = torch.softmax(x.double(), -1)
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-7)


def test_swiglu_equals_the_formula_in_float64(assert_agree):
    layer = SwiGLU(12, 20).double()

    def formula(x):
        return (
            functional.silu(x @ layer.w1.weight.T) * (x @ layer.w3.weight.T)
        ) @ layer.w2.weight.T

    assert_agree(layer, formula, [torch.randn(2, 3, 5, 12, dtype=torch.float64)], atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_feed_forward_equals_torch(assert_agree, name, bias):
    layer = FeedForward(12, activation=name, bias=bias)

    def torch_layer(x):
        hidden = TORCH_ACTIVATIONS[name](functional.linear(x, layer.w1.weight, layer.w1.bias))
        return functional.linear(hidden, layer.w2.weight, layer.w2.bias)

    assert layer.w1.weight.shape == (48, 12)
    assert_agree(layer, torch_layer, [torch.randn(2, 5, 12)])


def test_default_width_of_the_feed_forward():
    assert default_d_ff("swiglu", 512) == 1344
    assert default_d_ff("swiglu", 1600) == 4288
    assert default_d_ff("swiglu", 16) == 64
    assert default_d_ff("silu", 512) == 2048


def test_dropout_keeps_the_mean_and_rests_when_not_training():
    layer, x = Dropout(0.3), torch.ones(200_000)
    dropped = layer(x)
    assert (dropped == 0).double().mean().item() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1 / 0.7))
    assert torch.equal(layer.eval()(x), x)


def test_dropout_of_a_row_depends_on_its_generator_alone():
    layer, x = Dropout(0.5), torch.ones(6, 7)  # 6 entries of 3 rows, 14 numbers each

    def dropped(*seeds):
        with dropout_by_row([torch.Generator().manual_seed(seed) for seed in seeds]):
            return layer(x[: 2 * len(seeds)]).view(len(seeds), 14)

    together = dropped(1, 2, 3)
    assert torch.equal(together[1:], dropped(2, 3))
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_dropout_refuses_what_is_no_share(p):
    with pytest.raises(ConfigError, match="dropout is"):
        Dropout(p)
