"""Peak memory of a workload, and the largest batch that fits.

During the forward pass activations accumulate; the backward pass frees them again, last
layer first, and allocates gradients. The peak is at the loss, somewhere in the backward
pass, or at the optimizer's update, when all gradients are present.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trafo.account.account import Account, account
from trafo.account.optimizer import update
from trafo.account.parts import place_of
from trafo.account.workload import Workload
from trafo.models import ModelConfig
from trafo.optim.config import OptimizerName


@dataclass(frozen=True)
class Memory:
    """Bytes, by what they are for. The peak is less than the sum: not all of it lives at once."""

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int
    cache: int
    peak: int
    peak_at: str
    """the part, or the update, during which the peak is reached"""


def memory(
    result: Account, optimizer: OptimizerName = "adamw", *, accumulating: bool = False
) -> Memory:
    """Peak memory and its parts; `accumulating` keeps the gradients of earlier micro-batches."""
    number_bytes = result.work.number_bytes
    parameters = result.parameters * number_bytes
    if not result.work.is_training:
        moments = [(m.live_bytes, m.place.part) for m in result.timeline().moments]
        most, at = max(moments)
        peak = parameters + result.cache_bytes + most
        return Memory(parameters, 0, 0, 0, result.cache_bytes, peak, at)
    step = update(optimizer, result)
    at_update = parameters + step.workspace_numbers * number_bytes  # gradients, and more
    most, at = max([*_moments(result, accumulating), (at_update, "update")])
    state = step.state_numbers * number_bytes
    return Memory(
        parameters=parameters,
        gradients=parameters,
        optimizer_state=state,
        activations=result.kept_bytes,
        cache=0,
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
    kept, gradients = dict.fromkeys(result.layers, 0), dict.fromkeys(result.layers, 0)
    for place, num_bytes in step.kept.items():
        kept[place.block] += num_bytes
    for name, parameter in result.model.named_parameters():
        gradients[place_of(name).block] += parameter.nbytes
    standing = sum(result.layers[name] * size for name, size in gradients.items())
    if accumulating:
        gradients = dict.fromkeys(gradients, 0)
    runs = [(m.place.block, m.is_backward) for m in step.moments]
    first = {run: i for i, run in reversed([*enumerate(runs)])}
    last = {run: i for i, run in enumerate(runs)}
    for i, moment in enumerate(step.moments):
        live = moment.live_bytes + (standing if accumulating else 0)
        for name, number in result.layers.items():
            forward, backward = (name, False), (name, True)
            has_activations = first.get(forward, i) <= i <= last.get(backward, i)
            has_gradients = first.get(backward, i + 1) <= i
            live += (number - 1) * max(
                kept[name] * has_activations, gradients[name] * has_gradients
            )
        yield live, moment.place.part


def largest_batch(
    config: ModelConfig,
    work: Workload,
    available_bytes: int,
    optimizer: OptimizerName = "adamw",
    *,
    accumulating: bool = False,
) -> int:
    """The largest batch size whose peak memory fits; 0 if not even one sequence does."""

    def fits(batch_size: int) -> bool:
        result = account(config, replace(work, batch_size=batch_size))
        return memory(result, optimizer, accumulating=accumulating).peak <= available_bytes

    if not fits(1):
        return 0
    too_many = 2
    while fits(too_many):
        too_many *= 2
    enough = too_many // 2
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if fits(middle) else (enough, middle)
    return enough
