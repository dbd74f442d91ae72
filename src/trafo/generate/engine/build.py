"""A model -> the fastest engine that this machine has for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trafo.generate.config import EngineConfig
from trafo.generate.engine.cache import PagedCache, StepBatch
from trafo.generate.engine.engine import Engine, Step
from trafo.generate.engine.readable_step import ReadableStep
from trafo.models import CausalLM
from trafo.runtime.threads import ThreadChooser

if TYPE_CHECKING:
    from trafo.generate.packed.step import PackedStep

_FIXED_WORK = 4.0
"""fixed cost of a step (reading the weights), in tokens"""


def build_engine(model: CausalLM, config: EngineConfig | None = None) -> Engine:
    """An engine with compiled kernels where they support the model."""
    config = config or EngineConfig()
    model.eval()
    return Engine(model, config, build_step(model, config))


def build_step(model: CausalLM, config: EngineConfig) -> Step:
    """The step that the config asks for; kernels are compiled here, not by the first request."""
    from trafo.generate.packed.step import PackedStep, can_pack  # compiles when first used

    needs_kernels = config.kernel == "compiled" or config.weights != "float32"
    if config.kernel == "readable" or not (needs_kernels or can_pack(model)):
        return ReadableStep(model)
    step = PackedStep(model, config.weights)
    one = np.zeros(1, np.int64)
    step(StepBatch(one, one, one, one[:, None], one), PagedCache(model, 1))  # compiles
    if config.threads is not None:
        step.num_threads = config.threads
        return step
    return TimedStep(step)


class TimedStep:
    """A compiled step whose number of threads is chosen by timing it."""

    def __init__(self, step: PackedStep) -> None:
        self._step = step
        most = min(os.cpu_count() or 1, torch.get_num_threads())
        step.num_threads = most
        self.threads = ThreadChooser(most, self._use)

    def __call__(self, batch: StepBatch, cache: PagedCache) -> Tensor:
        """One step."""
        with self.threads.timed(len(batch.ids) + _FIXED_WORK):
            return self._step(batch, cache)

    def _use(self, number: int) -> None:
        self._step.num_threads = number
