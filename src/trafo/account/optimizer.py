"""What an update costs: the state an optimizer remembers, and its own arithmetic.

AdamW, for each number (what depends on t alone is computed once for all of them):

    m <- b1 m + (1 - b1) g                                  3 FLOPs
    v <- b2 v + (1 - b2) g g                                4
    p <- (1 - rate decay) p                                 1
    p <- p - rate_t m / (sqrt(v) / correction_t + eps)      6

Muon orthogonalises the momentum of each hidden matrix by five Newton-Schulz steps,
X <- a X + (b A + c A A) X with A = X X^T, and leaves everything else to AdamW.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trafo.account.parts import MatrixProduct, Weight

OptimizerName = Literal["adamw", "sgd", "muon"]

ADAMW_FLOPS_PER_PARAMETER = 3 + 4 + 1 + 6
ADAMW_NUMBERS_AT_ONCE = 2**18
SGD_FLOPS_PER_PARAMETER = 2
_NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True)
class Update:
    """One step of an optimizer over all weights."""

    state_numbers: int
    flops: int
    workspace_numbers: int
    """for the weight that needs most"""


def update(name: OptimizerName, weights: Iterable[Weight]) -> Update:
    """The cost of updating these weights."""
    count = {"adamw": _adamw, "sgd": _sgd, "muon": _muon}[name]
    parts = [count(weight) for weight in weights]
    return Update(
        state_numbers=sum(part.state_numbers for part in parts),
        flops=sum(part.flops for part in parts),
        workspace_numbers=max(part.workspace_numbers for part in parts),
    )


def _adamw(weight: Weight) -> Update:
    """Two moments; sqrt(v) + eps passes by, a block at a time."""
    numbers, at_once = weight.numbers, min(weight.numbers, ADAMW_NUMBERS_AT_ONCE)
    return Update(2 * numbers, ADAMW_FLOPS_PER_PARAMETER * numbers, at_once)


def _sgd(weight: Weight) -> Update:
    """p <- p - rate g: nothing to remember."""
    return Update(0, SGD_FLOPS_PER_PARAMETER * weight.numbers, 0)


def _muon(weight: Weight) -> Update:
    if weight.role != "hidden" or len(weight.shape) != 2:
        return _adamw(weight)
    numbers, small = weight.numbers, min(weight.shape)
    products = newton_schulz_products(weight)
    # Momentum 2, its look-ahead 2, norm 3, decay 1, update 2; and in each step 2 for the sum with
    # a X, and 3 for b A + c A A on the small square.
    simple = 10 * numbers + _NEWTON_SCHULZ_STEPS * (2 * numbers + 3 * small**2)
    flops = simple + sum(product.forward_flops for product in products)
    return Update(numbers, flops, 5 * numbers + small**2)


def newton_schulz_products(weight: Weight) -> tuple[MatrixProduct, ...]:
    """On the wide form of the matrix, so that A is as small as possible."""
    small, large = sorted(weight.shape)
    steps = _NEWTON_SCHULZ_STEPS
    return (
        MatrixProduct("A = X Xᵀ", small, large, small, times=steps),
        MatrixProduct("A A", small, small, small, times=steps),
        MatrixProduct("(b A + c A A) X", small, small, large, times=steps),
    )
