import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from trafo.errors import ConfigError
from trafo.optim import cross_entropy

leading_shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@settings(max_examples=30, deadline=None)
@given(
    leading_shapes,
    st.integers(1, 20),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_cross_entropy_equals_torch(leading, vocab, smoothing, scale):
    logits, targets = torch.randn(*leading, vocab) * scale, torch.randint(vocab, leading)
    expected = functional.cross_entropy(
        logits.double().view(-1, vocab), targets.view(-1), label_smoothing=smoothing
    )
    result = cross_entropy(logits, targets, label_smoothing=smoothing)
    torch.testing.assert_close(result.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_targets_and_gradients_equal_torch(smoothing, reduction):
    logits, targets = torch.randn(6, 9), torch.tensor([1, -100, 8, -100, 0, 3])
    results = []
    for function, name in (
        (cross_entropy, "ignore_id"),
        (functional.cross_entropy, "ignore_index"),
    ):
        leaf = logits.clone().requires_grad_()
        options = {name: -100, "label_smoothing": smoothing, "reduction": reduction}
        loss = function(leaf, targets, **options)
        loss.sum().backward()
        results.append((loss, leaf.grad))
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other)


def test_huge_logits_do_not_overflow():
    logits = torch.tensor([[1e30, 0.0], [-1e30, -1e30]])
    assert cross_entropy(logits, torch.tensor([0, 1]), reduction="none").tolist() == pytest.approx(
        [0.0, math.log(2)]
    )


def test_impossible_tokens_have_no_say():
    logits = torch.tensor([[1.0, -math.inf, 2.0]])
    expected = functional.cross_entropy(logits, torch.tensor([2]))
    torch.testing.assert_close(cross_entropy(logits, torch.tensor([2])), expected)


def test_bfloat16_logits_give_a_float32_loss():
    logits, targets = torch.randn(50, 1000).bfloat16(), torch.randint(1000, (50,))
    result = cross_entropy(logits, targets)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), functional.cross_entropy(logits.double(), targets))


def test_nothing_to_predict_is_no_loss():
    logits, targets = torch.randn(3, 5, requires_grad=True), torch.zeros(3, dtype=torch.long)
    loss = cross_entropy(logits, targets, ignore_id=0)
    loss.backward()
    assert loss.item() == 0.0
    assert not logits.grad.any()


def test_a_smoothing_that_is_no_share_is_refused():
    with pytest.raises(ConfigError, match=r"label_smoothing is 1\.5"):
        cross_entropy(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), label_smoothing=1.5)
