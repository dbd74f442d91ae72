"""Dropout (Srivastava et al., 2014): in training, set each number to zero with probability `p`.

The others are scaled by 1/(1-p), which keeps the expected value; evaluation changes nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.nn import Module

from trafo.errors import require

_BY_ROW: ContextVar[Sequence[torch.Generator]] = ContextVar("generators of the rows", default=())


@contextmanager
def dropout_by_row(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Inside, generator i draws the dropout of row i of a batch, independent of other rows."""
    token = _BY_ROW.set(generators)
    try:
        yield
    finally:
        _BY_ROW.reset(token)


def require_dropout(p: float, name: str = "dropout") -> None:
    """A dropout probability is at least 0 and below 1."""
    require(0.0 <= p < 1.0, f"{name} is {p}", "it must be at least 0 and below 1")


class Dropout(Module):
    """Zeroes each number with probability `p`, in training mode only."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        require_dropout(p)
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Zero some numbers and scale the others up in training, and nothing in evaluation mode."""
        if not self.training or self.p == 0.0:
            return x
        draw = _drawn_outside_graph if torch.compiler.is_compiling() else _drawn
        keep: Tensor = draw(x, 1.0 - self.p)
        return x * (keep.to(x.dtype) / (1.0 - self.p))

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"p={self.p}"


def _drawn(x: Tensor, p: float) -> Bool[Tensor, "..."]:
    """True with probability `p`: a random 16-bit integer is below p 2^16.

    Four of them come from one draw of 64 bits: a draw for each number took a fifth of a step.
    """
    generators = _BY_ROW.get() or (None,)
    # The first dimension may also hold several entries of each row, such as heads, row after row.
    assert x.shape[0] % len(generators) == 0, "the batch has other rows than generators"
    num_numbers = x.numel() // len(generators)
    draws = torch.empty(len(generators), -(-num_numbers // 4), dtype=torch.int64, device=x.device)
    for row, generator in zip(draws, generators, strict=True):
        row.random_(-(2**63), None, generator=generator)
    integers = draws.view(torch.int16)[:, :num_numbers]  # signed: from -2^15 on
    return (integers < round(p * 2**16) - 2**15).view(x.shape)


# A compiled graph cannot draw by generators. `torch.compiler.disable` would import the compiler
# here and now, a third of the start-up; this one imports it when it is called.
_drawn_outside_graph = _disable_dynamo(_drawn)
