"""A text and an experiment small enough for runs of a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trafo.experiments.spec import Experiment, make_experiment

MakeExperiment = Callable[..., Experiment]


@pytest.fixture(scope="session")
def base(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The settings of a tiny run."""
    return {
        "text": [str(text)],
        "steps": 20,
        "batch_size": 4,
        "model": {
            "vocab_size": 300,
            "context_length": 16,
            "d_model": 16,
            "num_layers": 1,
            "num_heads": 2,
        },
        "data": {"cache": str(tmp_path_factory.mktemp("cache"))},
        "watch": {
            "log_every": 2,
            "evaluate_every": 4,
            "evaluate_tokens": 256,
            "tensorboard": False,
        },
        "checkpoint": {"every": 4},
        "machine": {"threads": 1, "peak_flops": 1e11},
    }


@pytest.fixture(scope="session")
def make(base: dict[str, Any]) -> MakeExperiment:
    """An experiment on the tiny base; keywords are keys of the file."""

    def experiment(**asked: Any) -> Experiment:
        return make_experiment({"base": base} | asked, "tiny")

    return experiment
