"""Sharded parameters (FSDP2): every rank holds some rows of each, as a `DTensor`.

Elementwise work is done on this rank's shard; what needs the whole tensor (a norm, a matrix to
orthogonalize) gathers it first. An ordinary tensor is its own shard and its own whole.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(x: Tensor) -> TypeGuard[DTensor]:
    """Whether it is a DTensor. Importing that takes a while: if nobody has, there is none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def local(x: Tensor) -> Tensor:
    """This rank's shard, which shares its memory with `x`."""
    return x.to_local() if is_sharded(x) else x


def whole(x: Tensor) -> Tensor:
    """The full tensor, on every rank."""
    return x.full_tensor() if is_sharded(x) else x


def local_part_of(full: Tensor, like: Tensor) -> Tensor:
    """This rank's shard of `full`, sharded like `like`, without communication."""
    if not is_sharded(like):
        return full
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh
    everywhere = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
    part: Tensor = everywhere.redistribute(mesh, like.placements).to_local()
    return part
