"""One model on several ranks: DDP copies it to each, FSDP2 gives each a part.

Gradients come out averaged over the ranks in both. The loss of a rank is therefore multiplied by
their number, and what is averaged is the gradient of the whole batch (see `step.py`). What torch
has for this takes seconds to import, and is imported only where there are several ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Module

from trafo.train.config import Parallel
from trafo.train.objective import NextTokenLoss
from trafo.train.ranks import Ranks


def distribute(objective: NextTokenLoss, ranks: Ranks, parallel: Parallel) -> Module:
    """The objective as each rank runs it; with one rank, itself."""
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
    for layer in objective.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


@contextmanager
def gradients_stay_here(objective: Any, stay: bool) -> Iterator[None]:
    """Put off the exchange of gradients between ranks: all but the last of accumulated parts."""
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


def compiled(objective: Module) -> Module:
    """Compiled when it first runs."""
    wrapped = torch.compile(objective)
    assert isinstance(wrapped, Module)
    return wrapped
