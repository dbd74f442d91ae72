import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from trafo.errors import ConfigError, InputError
from trafo.optim import bits_per_byte, chunked_cross_entropy, cross_entropy, perplexity

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


@settings(max_examples=30, deadline=None)
@given(
    leading_shapes,
    st.integers(2, 20),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([None, 0]),
    st.sampled_from(["mean", "sum"]),
)
def test_loss_in_chunks_equals_the_loss_at_once(
    leading, vocab, rows, smoothing, ignored, reduction
):
    targets = torch.randint(vocab, leading)
    hidden, weight = torch.randn(*leading, 6), torch.randn(vocab, 6)
    options = {"ignore_id": ignored, "label_smoothing": smoothing, "reduction": reduction}
    results = []
    for chunked in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if chunked:
            loss = chunked_cross_entropy(h, w, targets, chunk_rows=rows, **options)
        else:
            loss = cross_entropy(h @ w.T, targets, **options)
        (3.0 * loss).backward()
        results.append((loss, h.grad, w.grad))
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("frozen", ["hidden", "weight", "both"])
def test_loss_in_chunks_computes_only_gradients_that_are_wanted(frozen):
    hidden = torch.randn(5, 4, requires_grad=frozen == "weight")
    weight = torch.randn(7, 4, requires_grad=frozen == "hidden")
    loss = chunked_cross_entropy(hidden, weight, torch.randint(7, (5,)))
    assert loss.requires_grad == (frozen != "both")
    if loss.requires_grad:
        loss.backward()
    assert (hidden.grad is None) == (frozen != "weight")
    assert (weight.grad is None) == (frozen != "hidden")


def test_loss_in_chunks_never_holds_all_logits():
    hidden = torch.randn(64, 4, requires_grad=True)
    weight = torch.randn(1000, 4, requires_grad=True)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():
        chunked_cross_entropy(hidden, weight, torch.randint(1000, (64,)), chunk_rows=8).backward()
    assert largest <= 8 * 1000


def test_loss_in_chunks_of_bfloat16():
    hidden = torch.randn(40, 16).bfloat16().requires_grad_()
    weight = torch.randn(50, 16).bfloat16().requires_grad_()
    targets = torch.randint(50, (40,))
    loss = chunked_cross_entropy(hidden, weight, targets, chunk_rows=16)
    loss.backward()
    assert (loss.dtype, hidden.grad.dtype) == (torch.float32, torch.bfloat16)
    expected = functional.cross_entropy(hidden.double() @ weight.double().T, targets)
    torch.testing.assert_close(loss.double(), expected, atol=2e-2, rtol=1e-2)


def test_perplexity_of_a_fair_choice():
    logits = torch.zeros(3, 8)
    loss = cross_entropy(logits, torch.tensor([0, 3, 7])).item()
    assert perplexity(loss) == pytest.approx(8.0, rel=1e-6)
    assert perplexity(1e6) == math.inf


def test_bits_per_byte_do_not_depend_on_the_cut_into_tokens():
    """A model that finds all bytes equally likely needs 8 bits, in tokens of one byte or of two."""
    assert bits_per_byte(100 * math.log(256), num_bytes=100) == pytest.approx(8.0)
    assert bits_per_byte(50 * math.log(65536), num_bytes=100) == pytest.approx(8.0)
    with pytest.raises(InputError, match="0 bytes"):
        bits_per_byte(1.0, 0)


def test_a_smoothing_that_is_no_share_is_refused():
    with pytest.raises(ConfigError, match=r"label_smoothing is 1\.5"):
        cross_entropy(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), label_smoothing=1.5)
