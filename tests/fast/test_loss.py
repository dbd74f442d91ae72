import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from trafo.fast import chunked_cross_entropy
from trafo.optim import cross_entropy


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 4), max_size=3).map(tuple),
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
