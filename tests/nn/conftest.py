"""One way to hold an implementation to another: same outputs, same gradients."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

Agree = Callable[..., None]


@pytest.fixture(scope="session")
def agree() -> Agree:
    def check(
        ours: Callable[..., Tensor],
        theirs: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        *,
        atol: float = 1e-5,
        rtol: float = 1e-4,
    ) -> None:
        """`ours(*inputs)` equals `theirs(*inputs)`, and so do the gradients of a random sum."""
        results = []
        upstream = None
        for function in (ours, theirs):
            leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
            out = function(*leaves)
            if upstream is None:
                upstream = torch.randn_like(out)
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            grads = torch.autograd.grad((out * upstream.to(out.dtype)).sum(), wanted)
            results.append((out.detach(), *grads))
        for mine, other in zip(*results, strict=True):
            torch.testing.assert_close(mine.double(), other.double(), atol=atol, rtol=rtol)

    return check
