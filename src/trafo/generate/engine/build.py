"""A model -> the fastest engine that this machine has for it."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch

from trafo.generate.engine.cache import PagedCache, StepBatch
from trafo.generate.engine.engine import Engine, Step
from trafo.generate.engine.readable_step import ReadableStep
from trafo.generate.engine.scheduler import EngineConfig
from trafo.models import CausalLM

if TYPE_CHECKING:
    from trafo.generate.packed.step import PackedStep

_ROWS = 4
_TRIES = 9


def build_engine(model: CausalLM, config: EngineConfig | None = None) -> Engine:
    """An engine with compiled kernels where they support the model."""
    config = config or EngineConfig()
    model.eval()
    return Engine(model, config, build_step(model, config))


def build_step(model: CausalLM, config: EngineConfig) -> Step:
    """The step of the kernels that the config asks for, with as many threads as pay."""
    from trafo.generate.packed.step import PackedStep, can_pack  # compiles when first used

    needs_kernels = config.kernel == "compiled" or config.weights != "float32"
    if config.kernel == "readable" or not (needs_kernels or can_pack(model)):
        return ReadableStep(model)
    step = PackedStep(model, config.weights)
    step.num_threads = config.threads or _fastest(step, model)
    return step


def _fastest(step: PackedStep, model: CausalLM) -> int:
    """The number of threads, by trying: more of them are not always faster."""
    cache = PagedCache(model, _ROWS)
    first = np.zeros(_ROWS, np.int64)
    tables = np.arange(_ROWS)[:, None]
    batch = StepBatch(first, first, np.arange(_ROWS), tables, np.arange(_ROWS))
    step(batch, cache)  # compiles
    seconds = {}
    most = min(os.cpu_count() or 1, torch.get_num_threads())
    for number in _counts(most):
        step.num_threads = number
        step(batch, cache)
        seconds[number] = median(_time(step, batch, cache) for _ in range(_TRIES))
    return min(seconds, key=lambda number: seconds[number])


def _counts(most: int) -> list[int]:
    """1, 2, 4, ... and all."""
    return sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})


def _time(step: Step, batch: StepBatch, cache: PagedCache) -> float:
    begin = time.perf_counter()
    step(batch, cache)
    return time.perf_counter() - begin
