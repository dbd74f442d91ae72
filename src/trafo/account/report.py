"""All answers about one model at one workload, together: what the table and the JSON show."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from trafo.account.clock import Speed, speed
from trafo.account.model import Account, account
from trafo.account.optimizer import OptimizerName, Update, update
from trafo.account.parts import Block, Component, MatrixProduct
from trafo.account.tide import Memory, largest_batch, memory
from trafo.account.workload import Workload
from trafo.errors import ConfigError
from trafo.models import ModelConfig, model_name


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
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", hint="it must be at least 1")


@dataclass(frozen=True)
class Report:
    """The account of a model, and what follows from it under the circumstances."""

    name: str
    account: Account
    circumstances: Circumstances
    memory: Memory
    update: Update
    largest_batch: int | None
    speed: Speed | None


def report(name: str, config: ModelConfig, work: Workload, circumstances: Circumstances) -> Report:
    result = account(config, work)
    optimizer, accumulating = circumstances.optimizer, circumstances.accumulate > 1
    own = update(optimizer, result.weights())
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
        "parts": [
            _part(result, block, part) for block in result.blocks for part in block.components
        ],
    }
    if result.work.is_training:
        answers["update"] = dataclasses.asdict(full.update)
    if full.largest_batch is not None:
        answers["largest_batch"] = full.largest_batch
    if full.speed is not None:
        answers["speed"] = dataclasses.asdict(full.speed)
    return answers


def _part(result: Account, block: Block, part: Component) -> dict[str, Any]:
    """All repetitions of a component together; its products as they are in one of them."""
    backward = part.backward_flops if result.work.is_training else 0
    return {
        "block": block.name,
        "name": part.name,
        "times": block.times,
        "parameters": block.times * part.parameters,
        "forward_flops": block.times * part.forward_flops,
        "backward_flops": block.times * backward,
        "kept_bytes": block.times * part.kept_bytes,
        "products": [_product(product) for product in part.products],
        "kept": [{"name": kept.name, "bytes": kept.bytes} for kept in part.kept],
    }


def _product(product: MatrixProduct) -> dict[str, Any]:
    shape = {"m": product.m, "n": product.n, "p": product.p, "times": product.times}
    return {"name": product.name, **shape, "forward_flops": product.forward_flops}


def shares(result: Account) -> dict[str, float]:
    """Of the forward pass: each kind of part and its share of all FLOPs, in order of running."""
    total = result.forward_flops
    flops: dict[str, int] = {}
    for part in result.in_order():
        if part.forward_flops:
            flops[part.name] = flops.get(part.name, 0) + part.forward_flops
    return {name: count / total for name, count in flops.items()}
