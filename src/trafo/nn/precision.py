"""Where the numbers of a layer are, how they are stored, and sums in float32 at least."""

import torch
from torch import Tensor

Device = torch.device | str | None
Dtype = torch.dtype | None


def at_least_float32(x: Tensor) -> Tensor:
    """Widen float16 and bfloat16 to float32, and keep float32 and float64 without a copy."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
