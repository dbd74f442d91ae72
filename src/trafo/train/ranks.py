"""This process among others: `torchrun` starts several, each with a rank.

Without torchrun there is one rank, number 0, and nothing here does anything. On CPUs the ranks talk
through gloo.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Ranks:
    """How many processes work together, and which one this is."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """The one that writes files and talks to people."""
        return self.rank == 0

    def add_up(self, value: Tensor) -> Tensor:
        """The sum over all ranks, in place; every rank must ask."""
        if self.world > 1:
            all_reduce(value)
        return value

    def largest(self, value: int) -> int:
        """The largest of all ranks' values; every rank must ask."""
        if self.world == 1:
            return value
        shared = torch.tensor(value)
        all_reduce(shared, ReduceOp.MAX)
        return int(shared)

    def agree(self, value: float) -> float:
        """The first rank's value, on every rank."""
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
        """Until every rank is here."""
        if self.world > 1:
            barrier()


def is_first_process() -> bool:
    """Whether this is the one that talks to people, asked before the ranks have met."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def ranks() -> Iterator[Ranks]:
    """Join the others that torchrun has started, and leave them at the end."""
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
