"""One update: batch -> loss -> gradients -> clip -> weights.

The loss is the mean over the ids of the whole batch, however it is split: each part adds up its
losses and divides by the number of ids in all of them.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import Module
from torch.optim import Optimizer

from trafo.data.windows import WindowSampler
from trafo.optim import clip_gradients
from trafo.optim.config import set_rates
from trafo.train.distributed import Ranks, gradients_stay_here


@dataclass(frozen=True)
class StepResult:
    """How an update went."""

    loss: float
    grad_norm: float
    batch: int
    """CRC-32 of the ids that the first rank has seen: tells one batch from another"""

    @property
    def is_sound(self) -> bool:
        """Whether both are numbers. If not, the weights must not be used any more."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


@dataclass
class Stepper:
    """Takes steps of one training."""

    objective: Module
    optimizers: list[Optimizer]
    sampler: WindowSampler
    ranks: Ranks = dataclasses.field(default_factory=Ranks)
    accumulate: int = 1
    max_grad_norm: float | None = 1.0
    overfit: bool = False
    observe: Callable[[], None] | None = None
    """called when the gradients are there and the weights are still the old ones"""
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self._parameters = [
            parameter
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def run(self, step: int, rate_factor: float) -> StepResult:
        """Update the weights with the batch of `step`; nothing is updated if it is not sound."""
        # All randomness of a step follows from its number: whoever begins here goes the same way.
        torch.manual_seed(_mixed(self.sampler.seed, step, self.ranks.rank))
        loss, batch = self._gradients(0 if self.overfit else step)
        if self.observe is not None:
            self.observe()
        norm = float(clip_gradients(self._parameters, self.max_grad_norm or math.inf))
        result = StepResult(loss, norm, batch)
        if result.is_sound:
            set_rates(self.optimizers, rate_factor)
            for optimizer in self.optimizers:
                optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return result

    def _gradients(self, step: int) -> tuple[float, int]:
        """Fill the gradients; returns the loss of the whole batch, and the check sum of its ids."""
        sampler, ranks = self.sampler, self.ranks
        num_ids = sampler.batch_size * sampler.context_length
        num_parts = ranks.world * self.accumulate
        total = torch.zeros((), dtype=torch.float64)
        check_sum = 0
        for part in range(self.accumulate):
            ids, targets = sampler.batch(
                step, ranks.rank * self.accumulate + part, num_parts, self.device
            )
            check_sum = zlib.crc32(ids.cpu().numpy().tobytes(), check_sum)
            with gradients_stay_here(self.objective, stay=part < self.accumulate - 1):
                loss = self.objective(ids, targets) / num_ids
                (loss * ranks.world).backward()  # ranks average, we want the sum
            total += loss.detach().cpu().double()
        return float(ranks.add_up(total)), check_sum


def _mixed(*numbers: int) -> int:
    """One seed from several numbers, with no relation between neighbours."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
