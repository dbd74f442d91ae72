"""A model -> the fastest engine that this machine has for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from trafo.generate.config import EngineConfig
from trafo.generate.engine.cache import PagedCache, StepBatch
from trafo.generate.engine.engine import Engine
from trafo.generate.engine.readable_step import ReadableStep
from trafo.models import CausalLM, is_builtin
from trafo.runtime.machine import available_memory
from trafo.runtime.threads import ThreadChooser

if TYPE_CHECKING:
    from trafo.generate.packed.step import PackedStep

_FIXED_WORK = 4.0
"""fixed cost of a step (reading the weights), in tokens"""


def build_engine(model: CausalLM, config: EngineConfig | None = None) -> Engine:
    """An engine with compiled kernels where they support the model, compiled before it is used."""
    config = config or EngineConfig()
    model.eval()
    step = make_step(model, config)
    one = np.zeros(1, np.int64)
    step(StepBatch(one, one, one, one[:, None], one), PagedCache(model, 1))
    if isinstance(step, ReadableStep):
        return Engine(model, config, step)
    step.num_threads = config.threads
    return Engine(model, config, step if config.threads else TimedStep(step))


def make_step(model: CausalLM, config: EngineConfig) -> ReadableStep | PackedStep:
    """The step that the config asks for."""
    if not uses_kernels(model, config):
        return ReadableStep(model)
    from trafo.generate.packed.step import PackedStep  # compiles when first used

    return PackedStep(model, config.weights)


def uses_kernels(model: CausalLM, config: EngineConfig) -> bool:
    """Whether compiled kernels decode; `auto`: if they support the model and memory allows it."""
    if config.kernel == "readable":
        return False
    if config.kernel == "compiled" or config.weights != "float32":
        return True
    copied = sum(parameter.nbytes for parameter in model.parameters())
    room = available_memory()
    return supports_kernels(model) and (room is None or copied < room)


def supports_kernels(model: Module) -> bool:
    """Whether the compiled kernels support this model's class, dtype and device."""
    return is_builtin(model) and all(
        p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters()
    )


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
