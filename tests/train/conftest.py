"""A text and a config small enough for a run of a second."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trafo.data.prepare import DataConfig
from trafo.models import TransformerLMConfig
from trafo.optim.config import OptimizerConfig
from trafo.train.config import CheckpointConfig, MachineConfig, TrainConfig, WatchConfig

MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sources.txt"
    path.write_text(inspect.getsource(textwrap) + inspect.getsource(inspect))
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make_config(text: Path, cache: Path, tmp_path: Path) -> MakeConfig:
    """A tiny config; keywords replace parts of it, `model__dropout=0.1` inside a branch.

    On one thread: where cores are busy, two wait for each other most of the time.
    """

    def make(out: str = "run", **changes: Any) -> TrainConfig:
        config = TrainConfig(
            text=(str(text),),
            out=tmp_path / out,
            steps=12,
            batch_size=4,
            model=TransformerLMConfig(
                vocab_size=300, context_length=16, d_model=16, num_layers=2, num_heads=2
            ),
            data=DataConfig(cache=cache),
            optimizer=OptimizerConfig(lr=3e-3),
            watch=WatchConfig(log_every=1, evaluate_every=4, sample_every=0, tensorboard=False),
            checkpoint=CheckpointConfig(every=3),
            machine=MachineConfig(threads=1, peak_flops=1e11),
        )
        by_branch: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            branch, _, name = key.rpartition("__")
            by_branch.setdefault(branch, {})[name] = value
        whole = by_branch.pop("", {})
        for branch, values in by_branch.items():
            whole[branch] = dataclasses.replace(getattr(config, branch), **values)
        return dataclasses.replace(config, **whole)

    return make
