"""Everything about one model at one workload: what the tables and the JSON show."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from trafo.account.account import Account, account
from trafo.account.memory import Memory, largest_batch, memory
from trafo.account.optimizer import Update, update
from trafo.account.parts import Part
from trafo.account.speed import Speed, speed
from trafo.account.workload import Workload
from trafo.errors import require_at_least
from trafo.models import ModelConfig, model_name
from trafo.optim.config import OptimizerName


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What is known about the machine and the run."""

    optimizer: OptimizerName = "adamw"
    accumulate: int = 1
    memory_bytes: int | None = None
    peak_flops: float | None = None
    utilisation: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        for name in ("accumulate", "memory_bytes", "steps"):
            require_at_least(1, **{name: getattr(self, name)})


@dataclass(frozen=True)
class Report:
    """The account of a model, and what follows from it for the machine and the run."""

    name: str
    account: Account
    circumstances: Circumstances
    memory: Memory
    update: Update
    largest_batch: int | None
    speed: Speed | None


def report(name: str, config: ModelConfig, work: Workload, circumstances: Circumstances) -> Report:
    """Account for a model: memory, update, largest batch and speed."""
    result = account(config, work)
    optimizer, accumulating = circumstances.optimizer, circumstances.accumulate > 1
    own = update(optimizer, result)
    available, peak_flops = circumstances.memory_bytes, circumstances.peak_flops
    return Report(
        name=name,
        account=result,
        circumstances=circumstances,
        memory=memory(result, optimizer, accumulating=accumulating),
        update=own,
        largest_batch=None
        if available is None
        else largest_batch(config, work, available, optimizer, accumulating=accumulating),
        speed=None
        if peak_flops is None
        else speed(
            result,
            peak_flops=peak_flops,
            utilisation=circumstances.utilisation,
            steps=circumstances.steps,
            accumulation_steps=circumstances.accumulate,
            update_flops=own.flops if work.is_training else 0,
        ),
    )


def to_dict(full: Report) -> dict[str, Any]:
    """Plain numbers under plain names, for JSON."""
    result = full.account
    answers: dict[str, Any] = {
        "name": full.name,
        "model": model_name(result.config),
        "config": dataclasses.asdict(result.config),
        "workload": dataclasses.asdict(result.work),
        "circumstances": dataclasses.asdict(full.circumstances),
        "parameters": result.parameters,
        "flops": {"forward": result.forward_flops, "backward": result.backward_flops},
        "memory": dataclasses.asdict(full.memory),
        "parts": [_part(part) for part in result.parts],
    }
    if result.work.is_training:
        answers["update"] = dataclasses.asdict(full.update)
    if full.largest_batch is not None:
        answers["largest_batch"] = full.largest_batch
    if full.speed is not None:
        answers["speed"] = dataclasses.asdict(full.speed)
    return answers


def _part(part: Part) -> dict[str, Any]:
    """All layers together, and the matrix products of one of them."""
    flops = {"forward_flops": part.forward_flops, "backward_flops": part.backward_flops}
    products = [
        dataclasses.asdict(product) | {"forward_flops": product.forward_flops}
        for product in part.products
    ]
    return dataclasses.asdict(part) | flops | {"products": products}


def shares(result: Account) -> dict[str, float]:
    """Each kind of part and its share of the FLOPs of a forward pass, in order of running."""
    flops: dict[str, int] = {}
    for (place, product), times in result.forward_pass.products.items():
        count = result.layers[place.block] * times * product.forward_flops
        flops[place.part] = flops.get(place.part, 0) + count
    return {name: count / result.forward_flops for name, count in flops.items()}
