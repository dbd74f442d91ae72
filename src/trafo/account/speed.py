"""Time: FLOPs divided by the FLOP/s that a machine really reaches.

A machine's data sheet says what its arithmetic can do at best; the share of it that a run reaches
is the model FLOPs utilisation (Chowdhery et al., 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

from trafo.account.account import Account
from trafo.errors import require


@dataclass(frozen=True)
class Speed:
    """Seconds of one step (or pass, or token), of all of them, and tokens per second."""

    seconds_per_step: float
    tokens_per_second: float
    total_seconds: float


def speed(
    result: Account,
    *,
    peak_flops: float,
    utilisation: float = 1.0,
    steps: int = 1,
    accumulation_steps: int = 1,
    update_flops: int = 0,
) -> Speed:
    """Time of a workload; `update_flops` are the optimizer's own, once per step."""
    require(peak_flops > 0, f"peak_flops is {peak_flops:g}", "it must be above 0")
    fits = 0 < utilisation <= 1
    require(fits, f"utilisation is {utilisation:g}", "choose from above 0 up to 1")
    flops = accumulation_steps * result.flops + update_flops
    seconds = flops / (peak_flops * utilisation)
    tokens = accumulation_steps * result.tokens
    return Speed(seconds, tokens / seconds, steps * seconds)
