"""Which step an engine gets, and how it finds its number of threads."""

import numpy as np
import torch

from trafo.generate.engine import EngineConfig, build
from trafo.generate.engine.build import TimedStep, build_engine, make_step
from trafo.generate.engine.cache import StepBatch
from trafo.generate.engine.readable_step import ReadableStep
from trafo.generate.packed.step import PackedStep
from trafo.models import TransformerLM


class CountedStep:
    """Does nothing but remember its threads."""

    num_threads = None

    def __init__(self):
        self.seen = []

    def __call__(self, batch, cache):
        self.seen.append(self.num_threads)


def test_threads_are_tried(monkeypatch):
    monkeypatch.setattr(build.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(build.torch, "get_num_threads", lambda: 4)
    one = np.zeros(1, np.int64)
    counted = CountedStep()
    step = TimedStep(counted)
    while step.threads._trial:
        step(StepBatch(one, one, one, one[:, None], one), None)
    assert set(counted.seen) == {1, 2, 4}
    assert counted.num_threads == step.threads.number


def test_the_kind_of_step(tiny):
    half = TransformerLM(61, 8, 24, 1, 4, dtype=torch.bfloat16).eval()
    assert isinstance(make_step(half, EngineConfig()), ReadableStep)
    assert isinstance(make_step(tiny(), EngineConfig(kernel="readable")), ReadableStep)
    assert isinstance(make_step(tiny(), EngineConfig()), PackedStep)


def test_an_engine_tries_threads_unless_their_number_is_given(tiny):
    assert isinstance(build_engine(tiny())._step, TimedStep)
    step = build_engine(tiny(), EngineConfig(threads=1))._step
    assert isinstance(step, PackedStep)
    assert step.num_threads == 1
