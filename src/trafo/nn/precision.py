"""Sums are computed in float32 at least, whatever the storage dtype."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """float16 and bfloat16 become float32; float32 and float64 stay, without a copy."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
