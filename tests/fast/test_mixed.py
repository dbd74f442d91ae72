"""Mixed precision: products of bfloat16 numbers, against exact sums of the same rounded numbers."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.fast import accelerate, chunked_cross_entropy
from trafo.fast.mixed import is_mixed, mixed_product
from trafo.models import EncoderDecoderConfig, GPT2Config, TransformerLMConfig, build_model
from trafo.nn import Linear
from trafo.training.tasks.language import NextTokenLoss
from trafo.training.tasks.translation import TargetLoss

BF16 = torch.bfloat16
ROUNDING = 2**-8  # of a bfloat16: eight bits of mantissa
sizes = st.integers(0, 9)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.to(BF16).double()


@settings(max_examples=60, deadline=None)
@given(st.lists(sizes, min_size=0, max_size=3), st.integers(1, 40), st.integers(1, 9))
def test_a_product_and_its_gradients_are_those_of_the_rounded_numbers(lead, d_in, d_out):
    x = torch.randn(*lead, d_in, requires_grad=True)
    weight = torch.randn(d_out, d_in, requires_grad=True)
    upstream = torch.randn(*lead, d_out)
    out = mixed_product(x, weight)
    out.backward(upstream)
    rows, grads = rounded(x.detach()).reshape(-1, d_in), rounded(upstream).reshape(-1, d_out)
    exact = {
        "out": (out, rows @ rounded(weight.detach()).T),
        "x": (x.grad, grads @ rounded(weight.detach())),
        "weight": (weight.grad, grads.T @ rows),
    }
    for name, (found, expected) in exact.items():
        assert found is not None
        assert found.dtype == torch.float32, name
        torch.testing.assert_close(
            found.double().reshape(expected.shape), expected, rtol=ROUNDING, atol=1e-5
        )


def test_mixed_precision_is_that_of_autocast_on_a_cpu():
    fast = accelerate(Linear(16, 8, bias=True))
    x = torch.randn(5, 16)
    assert not is_mixed()
    exact = fast(x)
    with torch.autocast("cpu", BF16):
        assert is_mixed()
        mixed = fast(x)
    assert mixed.dtype == torch.float32
    assert not torch.equal(mixed, exact)
    torch.testing.assert_close(mixed, exact, atol=0.1, rtol=0.05)


SMALL = {"vocab_size": 23, "context_length": 12, "d_model": 16, "num_layers": 2, "num_heads": 4}
PAIRS = {"source_vocab_size": 23, "target_vocab_size": 23, "d_model": 16, "num_heads": 4}
CONFIGS = [
    TransformerLMConfig(**SMALL),
    TransformerLMConfig(**SMALL, window=3, tied_head=True, qkv_bias=True),
    TransformerLMConfig(**SMALL, norm="layernorm", feed_forward="gelu", positions="learned"),
    GPT2Config(**SMALL),
    EncoderDecoderConfig(**PAIRS, d_ff=40, dropout=0.0, shared_embeddings="all"),
    EncoderDecoderConfig(**PAIRS, d_ff=40, dropout=0.0, head_bias=True, norm_placement="pre"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: type(c).__name__)
def test_loss_and_gradients_are_near_those_of_float32(config):
    """As near as autocast of the readable model comes, or nearer."""
    torch.manual_seed(0)
    model: Any = build_model(config)
    ids = torch.randint(1, 23, (6, 13))
    is_translator = isinstance(config, EncoderDecoderConfig)
    given = (ids[:, :9], ids[:, :-1], ids[:, 1:]) if is_translator else (ids[:, :-1], ids[:, 1:])

    def gradients(model: Any, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
        loss = TargetLoss(model, 0.1, dtype) if is_translator else NextTokenLoss(model, dtype, 0.1)
        model.zero_grad(set_to_none=True)
        total = loss(*given)
        total.backward()
        return float(total.detach()), torch.cat([p.grad.flatten() for p in model.parameters()])

    exact_loss, exact = gradients(model, torch.float32)
    _, autocast = gradients(copy.deepcopy(model), BF16)
    loss, mixed = gradients(accelerate(copy.deepcopy(model)), BF16)
    assert loss == pytest.approx(exact_loss, rel=5e-3)
    assert (mixed - exact).norm() < 1.2 * (autocast - exact).norm()
    assert 0 < (mixed - exact).norm() < 0.05 * exact.norm()


def test_the_loss_in_chunks_adds_up_in_float32():
    """Many small gradients of one weight would vanish in a sum of bfloat16 numbers."""
    hidden = torch.ones(4096, 8)
    weight = torch.randn(5, 8).mul_(0.01).requires_grad_()
    targets = torch.arange(4096) % 5
    found = []
    for mixed in (False, True):
        weight.grad = None
        with torch.autocast("cpu", BF16, enabled=mixed):
            chunked_cross_entropy(hidden, weight, targets, chunk_rows=1, reduction="sum").backward()
        assert weight.grad is not None
        found.append(weight.grad)
    assert found[1].dtype == torch.float32
    scale = 4096 * 0.2  # of what is added up; the sum nearly cancels
    torch.testing.assert_close(found[1] / scale, found[0] / scale, atol=2 * ROUNDING, rtol=0)
