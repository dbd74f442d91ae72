"""Peak FLOP/s of the machine, measured on matrix products."""

from __future__ import annotations

from time import perf_counter

import torch

_SIZE = 1024
_ROUNDS = 12


def measured_peak_flops(device: torch.device | str = "cpu") -> float:
    """FLOP/s of the best of several square float32 products; takes a fraction of a second."""
    a, b = torch.rand(2, _SIZE, _SIZE, device=device).unbind()
    c = torch.empty_like(a)
    seconds = []
    for _ in range(_ROUNDS):
        start = perf_counter()
        torch.mm(a, b, out=c)
        float(c[0, 0])  # waits for a device that works on its own
        seconds.append(perf_counter() - start)
    return float(2 * _SIZE**3 / min(seconds))
