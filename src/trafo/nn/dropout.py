"""Dropout (Srivastava et al., 2014): in training, set each number to zero with probability `p`.

The others are scaled by 1/(1-p), which keeps the expected value; evaluation changes nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from trafo.errors import require

_BY_ROW: ContextVar[Sequence[torch.Generator]] = ContextVar("generators of the rows", default=())


@contextmanager
def dropout_by_row(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Inside, dropout of row i of a batch is drawn by generator i alone, whatever the rest is."""
    token = _BY_ROW.set(generators)
    try:
        yield
    finally:
        _BY_ROW.reset(token)


def require_dropout(p: float) -> None:
    """A dropout probability is at least 0 and below 1."""
    require(0.0 <= p < 1.0, f"dropout is {p}", "it must be at least 0 and below 1")


class Dropout(Module):
    """Zeroes each number with probability `p`, in training mode only."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        require_dropout(p)
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """x with some numbers zeroed and the others scaled up; x itself in evaluation mode."""
        if not self.training or self.p == 0.0:
            return x
        keep: Tensor = _drawn(x, 1.0 - self.p)
        return x * keep / (1.0 - self.p)

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"p={self.p}"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _drawn(x: Tensor, p: float) -> Tensor:
    """Ones with probability `p`, else zeros."""
    generators = _BY_ROW.get()
    if not generators:
        return torch.empty_like(x, requires_grad=False).bernoulli_(p)
    keep = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    # The first dimension may also hold several entries of each row, such as heads, row after row.
    assert x.shape[0] % len(generators) == 0, "the batch has other rows than generators"
    for row, generator in zip(keep.view(len(generators), -1), generators, strict=True):
        row.bernoulli_(p, generator=generator)
    return keep
