"""Peak memory of a workload, and the largest batch that fits.

During the forward pass activations accumulate; the backward pass frees them again, last
layer first, and allocates gradients. The peak is at the loss, somewhere in the backward
pass, or at the optimizer's update, when all gradients are present.

An optimizer keeps a state and does FLOPs of its own. AdamW does, for each number (what depends on t
alone is computed once for all of them):

    m <- b1 m + (1 - b1) g                                  3 FLOPs
    v <- b2 v + (1 - b2) g g                                4
    p <- (1 - rate decay) p                                 1
    p <- p - rate_t m / (sqrt(v) / correction_t + eps)      6

Muon orthogonalises the momentum of each hidden matrix by five Newton-Schulz steps,
X <- a X + (b A + c A A) X with A = X X^T, and leaves everything else to AdamW.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor
from torch.optim import Optimizer

from trafo.account.account import Account, account
from trafo.account.dry_run import find_part
from trafo.account.workload import Workload
from trafo.models import ModelConfig
from trafo.optim import SGD, Muon
from trafo.optim.adamw import BLOCK_NUMBERS
from trafo.optim.config import OptimizerConfig, OptimizerName, build_optimizers

ADAMW_FLOPS = 3 + 4 + 1 + 6
SGD_FLOPS = 2
_NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Bytes, by what they are for. The peak is less than the sum: not all of it lives at once."""

    parameters: int
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    cache: int = 0
    peak: int
    peak_at: str
    """the part, or the update, during which the peak is reached"""


def predict_memory(
    result: Account, optimizer: OptimizerName = "adamw", *, accumulating: bool = False
) -> MemoryUse:
    """Predict peak memory, beside gradients of earlier micro-batches if `accumulating`."""
    kept, number_bytes = result.kept.total(), result.work.number_bytes
    parameters = result.parameters * number_bytes
    if not result.work.is_training:
        _, moments = result.timeline()
        most, at = max((live_bytes, key.name) for (key, _), live_bytes in moments.items())
        peak = parameters + kept + most
        return MemoryUse(parameters=parameters, cache=kept, peak=peak, peak_at=at)
    step = predict_update(optimizer, result)
    at_update = parameters + step.workspace_numbers * number_bytes  # gradients, and more
    most, at = max([*_moments(result, accumulating), (at_update, "update")])
    state = step.state_numbers * number_bytes
    return MemoryUse(
        parameters=parameters,
        gradients=parameters,
        optimizer_state=state,
        activations=kept,
        peak=parameters + state + most,
        peak_at=at,
    )


def _moments(result: Account, accumulating: bool) -> Iterator[tuple[int, str]]:
    """Yield the bytes alive at each moment of a training step, in all layers, and its part.

    One layer of each kind was run. The others hold activations from when their kind has run until
    its backward pass, and gradients after that. During it some hold these and some hold those, and
    the worst moment is the first one or the last one.
    """
    kept_bytes, moments = result.timeline(accumulating=accumulating)
    kept, gradients = Counter[str](), Counter[str]()
    for key, num_bytes in kept_bytes.items():
        kept[key.block] += num_bytes
    for name, parameter in result.model.named_parameters():
        gradients[find_part(name).block] += parameter.nbytes
    standing = 0
    if accumulating:
        standing = sum(result.layers[name] * size for name, size in gradients.items())
        gradients.clear()
    runs = [(key.block, is_backward) for key, is_backward in moments]
    first = {run: i for i, run in reversed([*enumerate(runs)])}
    last = {run: i for i, run in enumerate(runs)}
    for i, ((moment, _), live) in enumerate(moments.items()):
        others = 0
        for name, number in result.layers.items():
            forward, backward = (name, False), (name, True)
            has_activations = first.get(forward, i) <= i <= last.get(backward, i)
            has_gradients = first.get(backward, i + 1) <= i
            held = max(kept[name] * has_activations, gradients[name] * has_gradients)
            others += (number - 1) * held
        yield standing + live + others, moment.name


def find_largest_batch(
    config: ModelConfig,
    work: Workload,
    available_bytes: int,
    optimizer: OptimizerName = "adamw",
    *,
    accumulating: bool = False,
) -> int:
    """Find the largest batch size whose peak memory fits, 0 if not even one sequence does."""

    def peak(batch_size: int) -> int:
        result = account(config, replace(work, batch_size=batch_size))
        return predict_memory(result, optimizer, accumulating=accumulating).peak

    # A sequence takes at least a byte.
    return bisect_right(range(1, available_bytes + 1), available_bytes, key=peak)


@dataclass(frozen=True)
class Update:
    """One step of an optimizer over all parameters."""

    state_numbers: int
    flops: int
    workspace_numbers: int
    """temporary numbers, for the parameter that needs most"""


def predict_update(name: OptimizerName, result: Account) -> Update:
    """Predict the cost of updating all parameters of a model."""
    layers = {p: result.layers[find_part(n).block] for n, p in result.model.named_parameters()}
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
        flops = simple + count_newton_schulz_flops(*parameter.shape)
        return Update(numbers, flops, 5 * numbers + square)
    # Two moments; sqrt(v) + eps passes by, a block at a time.
    return Update(2 * numbers, ADAMW_FLOPS * numbers, min(numbers, BLOCK_NUMBERS))


def count_newton_schulz_flops(rows: int, columns: int) -> int:
    """Count X X^T, A A and (...) X, on the wide form of the matrix, so that A is small."""
    small, large = sorted((rows, columns))
    return _NEWTON_SCHULZ_STEPS * 2 * (small * large * small + small**3 + small * small * large)
