"""How much memory a workload takes, and the largest batch that fits.

While the forward pass runs, activations pile up; the backward pass takes them down again, last
layer first, and leaves gradients in their place. The peak is the highest moment of that tide: at
the loss, somewhere in the backward pass, or at the update, when all gradients are there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trafo.account.model import Account, account
from trafo.account.optimizer import OptimizerName, update
from trafo.account.workload import Workload
from trafo.models import ModelConfig


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
    """the component, or the update, during which the peak is reached"""


def memory(
    result: Account, optimizer: OptimizerName = "adamw", *, accumulating: bool = False
) -> Memory:
    """`accumulating`: gradients of earlier micro-batches stay while this one runs."""
    number_bytes = result.work.number_bytes
    parameters = result.parameters * number_bytes
    if not result.work.is_training:
        at, most = max(
            ((part.name, part.workspace_bytes) for part in result.in_order()), key=lambda x: x[1]
        )
        peak = parameters + result.cache_bytes + most
        return Memory(parameters, 0, 0, 0, result.cache_bytes, peak, at)
    step = update(optimizer, result.weights())
    state = step.state_numbers * number_bytes
    moments = dict(_moments_of_backward(result, accumulating))
    moments["update"] = parameters + step.workspace_numbers * number_bytes  # gradients, and more
    at = max(moments, key=moments.__getitem__)
    return Memory(
        parameters=parameters,
        gradients=parameters,
        optimizer_state=state,
        activations=result.kept_bytes,
        cache=0,
        peak=parameters + state + moments[at],
        peak_at=at,
    )


def _moments_of_backward(result: Account, accumulating: bool) -> dict[str, int]:
    """Activations, gradients and workspace together, at the worst moment of each component."""
    activations = result.kept_bytes
    gradients = result.parameters * result.work.number_bytes if accumulating else 0
    worst: dict[str, int] = {}
    for part in reversed(list(result.in_order())):
        now = activations + gradients + part.workspace_bytes
        worst[part.name] = max(worst.get(part.name, 0), now)
        activations -= part.kept_bytes
        if not accumulating:
            gradients += part.parameters * result.work.number_bytes
    return worst


def largest_batch(
    config: ModelConfig,
    work: Workload,
    available_bytes: int,
    optimizer: OptimizerName = "adamw",
    *,
    accumulating: bool = False,
) -> int:
    """The most rows whose peak fits; 0 if not even one does."""

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
