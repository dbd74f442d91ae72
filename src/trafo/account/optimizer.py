"""Cost of an optimizer step: its state and its FLOPs.

AdamW, for each number (what depends on t alone is computed once for all of them):

    m <- b1 m + (1 - b1) g                                  3 FLOPs
    v <- b2 v + (1 - b2) g g                                4
    p <- (1 - rate decay) p                                 1
    p <- p - rate_t m / (sqrt(v) / correction_t + eps)      6

Muon orthogonalises the momentum of each hidden matrix by five Newton-Schulz steps,
X <- a X + (b A + c A A) X with A = X X^T, and leaves everything else to AdamW.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.optim import Optimizer

from trafo.account.account import Account
from trafo.account.parts import place_of
from trafo.optim import SGD, Muon
from trafo.optim.adamw import BLOCK_NUMBERS
from trafo.optim.config import OptimizerConfig, OptimizerName, build_optimizers

ADAMW_FLOPS = 3 + 4 + 1 + 6
SGD_FLOPS = 2
_NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True)
class Update:
    """One step of an optimizer over all parameters."""

    state_numbers: int
    flops: int
    workspace_numbers: int
    """temporary numbers, for the parameter that needs most"""


def update(name: OptimizerName, result: Account) -> Update:
    """The cost of updating all parameters of a model."""
    layers = {p: result.layers[place_of(n).block] for n, p in result.model.named_parameters()}
    costs = [
        (layers[parameter], _cost(optimizer, parameter))
        for optimizer in build_optimizers(result.model, OptimizerConfig(name=name))
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    return Update(
        state_numbers=sum(number * cost.state_numbers for number, cost in costs),
        flops=sum(number * cost.flops for number, cost in costs),
        workspace_numbers=max(cost.workspace_numbers for _, cost in costs),
    )


def _cost(optimizer: Optimizer, parameter: Tensor) -> Update:
    numbers = parameter.numel()
    if isinstance(optimizer, SGD):  # p <- p - rate g: nothing to keep
        return Update(0, SGD_FLOPS * numbers, 0)
    if isinstance(optimizer, Muon):
        # Momentum 2, its look-ahead 2, norm 3, decay 1, update 2; and in each step 2 for the sum
        # with a X, and 3 for b A + c A A on the small square.
        square = min(parameter.shape) ** 2
        simple = 10 * numbers + _NEWTON_SCHULZ_STEPS * (2 * numbers + 3 * square)
        flops = simple + newton_schulz_flops(*parameter.shape)
        return Update(numbers, flops, 5 * numbers + square)
    # Two moments; sqrt(v) + eps passes by, a block at a time.
    return Update(2 * numbers, ADAMW_FLOPS * numbers, min(numbers, BLOCK_NUMBERS))


def newton_schulz_flops(rows: int, columns: int) -> int:
    """Of X X^T, A A and (...) X, on the wide form of the matrix, so that A is small."""
    small, large = sorted((rows, columns))
    return _NEWTON_SCHULZ_STEPS * 2 * (small * large * small + small**3 + small * small * large)
