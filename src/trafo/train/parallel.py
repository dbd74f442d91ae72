"""One model on several ranks: DDP copies it to each, FSDP2 gives each a part.

Gradients come out averaged over the ranks in both. The loss of a rank is therefore multiplied by
their number, and what is averaged is the gradient of the whole batch (see `step.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from trafo.train.config import Parallel
from trafo.train.objective import NextTokenLoss
from trafo.train.ranks import Ranks


def distribute(objective: NextTokenLoss, ranks: Ranks, parallel: Parallel) -> Module:
    """The objective as each rank runs it; with one rank, itself."""
    if ranks.world == 1:
        return objective
    device = next(objective.parameters()).device
    if parallel == "ddp":
        ids = [ranks.local_rank] if device.type == "cuda" else None
        return DistributedDataParallel(objective, device_ids=ids)
    mesh = init_device_mesh(device.type, (ranks.world,))
    for layer in objective.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


@contextmanager
def gradients_stay_here(objective: Module, stay: bool) -> Iterator[None]:
    """Put off the exchange of gradients between ranks: all but the last of accumulated parts."""
    if not stay:
        yield
    elif isinstance(objective, DistributedDataParallel):
        with objective.no_sync():
            yield
    elif isinstance(objective, FSDPModule):
        objective.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            objective.set_requires_gradient_sync(True)
    else:
        yield


def uncompiled(module: Module) -> Module:
    """The module that `torch.compile` has wrapped."""
    inner = getattr(module, "_orig_mod", module)
    assert isinstance(inner, Module)
    return inner


def compiled(objective: Module) -> Module:
    """Compiled when it first runs."""
    wrapped = torch.compile(objective)
    assert isinstance(wrapped, Module)
    return wrapped
