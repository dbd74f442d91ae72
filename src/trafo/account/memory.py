"""Peak memory of a workload, and the largest batch that fits.

During the forward pass activations accumulate; the backward pass frees them again, last
layer first, and allocates gradients. The peak is at the loss, somewhere in the backward
pass, or at the optimizer's update, when all gradients are present.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trafo.account.account import Account, account
from trafo.account.optimizer import update
from trafo.account.parts import place_of
from trafo.account.workload import Workload
from trafo.models import ModelConfig
from trafo.optim.config import OptimizerName


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes, by what they are for. The peak is less than the sum: not all of it lives at once."""

    parameters: int
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    cache: int = 0
    peak: int
    peak_at: str
    """the part, or the update, during which the peak is reached"""


def memory(
    result: Account, optimizer: OptimizerName = "adamw", *, accumulating: bool = False
) -> Memory:
    """Peak memory and its parts; `accumulating` keeps the gradients of earlier micro-batches."""
    kept, number_bytes = result.kept.total(), result.work.number_bytes
    parameters = result.parameters * number_bytes
    if not result.work.is_training:
        moments = result.timeline().most_bytes
        most, at = max((live_bytes, place.name) for (place, _), live_bytes in moments.items())
        peak = parameters + kept + most
        return Memory(parameters=parameters, cache=kept, peak=peak, peak_at=at)
    step = update(optimizer, result)
    at_update = parameters + step.workspace_numbers * number_bytes  # gradients, and more
    most, at = max([*_moments(result, accumulating), (at_update, "update")])
    state = step.state_numbers * number_bytes
    return Memory(
        parameters=parameters,
        gradients=parameters,
        optimizer_state=state,
        activations=kept,
        peak=parameters + state + most,
        peak_at=at,
    )


def _moments(result: Account, accumulating: bool) -> Iterator[tuple[int, str]]:
    """What is alive at each moment of a training step, in all layers.

    One layer of each kind was run. The others hold activations from when their kind has run until
    its backward pass, gradients after that; during it some hold these and some hold those, and the
    worst moment is the first one or the last one.
    """
    step = result.timeline(accumulating=accumulating)
    kept, gradients = Counter[str](), Counter[str]()
    for place, num_bytes in step.kept.items():
        kept[place.block] += num_bytes
    for name, parameter in result.model.named_parameters():
        gradients[place_of(name).block] += parameter.nbytes
    standing = 0
    if accumulating:
        standing = sum(result.layers[name] * size for name, size in gradients.items())
        gradients.clear()
    runs = [(place.block, is_backward) for place, is_backward in step.most_bytes]
    first = {run: i for i, run in reversed([*enumerate(runs)])}
    last = {run: i for i, run in enumerate(runs)}
    for i, ((moment, _), live) in enumerate(step.most_bytes.items()):
        others = 0
        for name, number in result.layers.items():
            forward, backward = (name, False), (name, True)
            has_activations = first.get(forward, i) <= i <= last.get(backward, i)
            has_gradients = first.get(backward, i + 1) <= i
            held = max(kept[name] * has_activations, gradients[name] * has_gradients)
            others += (number - 1) * held
        yield standing + live + others, moment.name


def largest_batch(
    config: ModelConfig,
    work: Workload,
    available_bytes: int,
    optimizer: OptimizerName = "adamw",
    *,
    accumulating: bool = False,
) -> int:
    """The largest batch size whose peak memory fits; 0 if not even one sequence does."""

    def peak(batch_size: int) -> int:
        result = account(config, replace(work, batch_size=batch_size))
        return memory(result, optimizer, accumulating=accumulating).peak

    # A sequence takes at least a byte.
    return bisect_right(range(1, available_bytes + 1), available_bytes, key=peak)
