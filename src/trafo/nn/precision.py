"""Where the numbers of a layer are and how they are stored; sums are in float32 at least."""

import torch
from torch import Tensor

Device = torch.device | str | None
Dtype = torch.dtype | None


def at_least_float32(x: Tensor) -> Tensor:
    """float16 and bfloat16 become float32; float32 and float64 stay, without a copy."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
