"""Parameters cut into shards (FSDP2): every rank holds some rows of each, as a `DTensor`.

What treats every number alike works on this rank's shard; what needs the whole (a norm, a matrix to
orthogonalize) gathers it first. An ordinary tensor is its own shard and its own whole.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(x: Tensor) -> TypeGuard[DTensor]:
    """Importing DTensor takes a while: if nobody has, there is none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def local(x: Tensor) -> Tensor:
    """This rank's part; writing to it writes to `x`."""
    return x.to_local() if is_sharded(x) else x


def whole(x: Tensor) -> Tensor:
    """All of it, on every rank."""
    return x.full_tensor() if is_sharded(x) else x


def local_part_of(full: Tensor, like: Tensor) -> Tensor:
    """What `local(like)` would be if `like` were `full`: nothing has to be sent for that."""
    if not is_sharded(like):
        return full
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh
    everywhere = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
    part: Tensor = everywhere.redistribute(mesh, like.placements).to_local()
    return part
