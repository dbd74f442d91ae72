"""Distributed training: `torchrun` starts several processes, each with a rank.

Without torchrun there is one rank, number 0, and nothing here does anything. On CPUs the ranks talk
through gloo. DDP copies the model to each rank, FSDP2 gives each a part of it; gradients come out
averaged over the ranks in both. The loss of a rank is therefore multiplied by their number, and
what is averaged is the gradient of the whole batch (see `step.py`). What torch has for this takes
seconds to import, and is imported only where there are several ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import (
    ReduceOp,
    all_reduce,
    barrier,
    broadcast,
    destroy_process_group,
    init_process_group,
)
from torch.nn import Module

from trafo.checkpoint.snapshot import restore_weights, take_weights
from trafo.fast import accelerate, is_accelerated
from trafo.models import ModelConfig, build_model
from trafo.optim.sharded import is_sharded
from trafo.training.config import Parallel


@dataclass(frozen=True)
class Ranks:
    """How many processes train together, and which one this is."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """The rank that writes files and prints messages."""
        return self.rank == 0

    def add_up(self, value: Tensor) -> Tensor:
        """The sum over all ranks, in place (all-reduce); every rank must call this."""
        if self.world > 1:
            all_reduce(value)
        return value

    def largest(self, value: int) -> int:
        """The maximum over all ranks; every rank must call this."""
        if self.world == 1:
            return value
        shared = torch.tensor(value)
        all_reduce(shared, ReduceOp.MAX)
        return int(shared)

    def agree(self, value: float) -> float:
        """The first rank's value, on every rank (broadcast)."""
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64)
        broadcast(shared, src=0)
        return float(shared)

    def agree_on(self, text: str) -> str:
        """The first rank's text, on every rank."""
        if self.world == 1:
            return text
        data = torch.tensor(list(text.encode()), dtype=torch.uint8)
        length = torch.tensor(len(data))
        broadcast(length, src=0)
        if not self.is_first:
            data = torch.empty(int(length), dtype=torch.uint8)
        broadcast(data, src=0)
        return bytes(data.tolist()).decode()

    def wait(self) -> None:
        """Wait until every rank is here (barrier)."""
        if self.world > 1:
            barrier()


def is_first_process() -> bool:
    """Whether this is rank 0, known before the process group exists."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def ranks() -> Iterator[Ranks]:
    """Join the process group that torchrun has started, and leave it at the end."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or "RANK" not in os.environ:
        yield Ranks()
        return
    init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        yield Ranks(int(os.environ["RANK"]), world, local)
    finally:
        destroy_process_group()


def distribute(
    objective: Module, blocks: Iterable[Module], ranks: Ranks, parallel: Parallel
) -> Module:
    """The objective as each rank runs it; with one rank, itself. FSDP gathers block by block."""
    if ranks.world == 1:
        return objective
    device = next(objective.parameters()).device
    if parallel == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        ids = [ranks.local_rank] if device.type == "cuda" else None
        return DistributedDataParallel(objective, device_ids=ids)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (ranks.world,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


@contextmanager
def gradients_stay_here(objective: Any, stay: bool) -> Iterator[None]:
    """Skip the gradient all-reduce between ranks, in all but the last accumulation step."""
    # By what they offer: with one rank there is neither, and nothing to import.
    if stay and hasattr(objective, "no_sync"):
        with objective.no_sync():
            yield
    elif stay and hasattr(objective, "set_requires_gradient_sync"):
        objective.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            objective.set_requires_gradient_sync(True)
    else:
        yield


def whole_model(model: Module, config: ModelConfig, ranks: Ranks) -> Module | None:
    """The model, or a copy gathered from its shards. All ranks call this, the first gets it."""
    if not is_sharded(next(model.parameters())):
        return model if ranks.is_first else None
    weights = take_weights(model)
    if not ranks.is_first:
        return None
    copy = build_model(config)
    restore_weights(weights, copy)
    return accelerate(copy) if is_accelerated(model) else copy
