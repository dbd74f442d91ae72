"""The trainer with a task of another kind: no windows, no language model, uneven batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.conftest import MakeConfig
from torch import Tensor, nn

from trafo.errors import InputError
from trafo.optim.config import ScheduleConfig
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks
from trafo.training.loop import Trainer
from trafo.training.metrics import Record
from trafo.training.plan import Clock, make_plan
from trafo.training.report import Listen, Listener, Reporter
from trafo.training.run import Run, TrainerState
from trafo.training.step import Training
from trafo.training.tasks.task import Batch, Task

WEIGHT = torch.tensor([[1.0, -2.0, 0.5]])


class Regression:
    """Rows of numbers with a known answer; each batch has another number of rows."""

    tokens_per_step = 20
    num_held_out = 10
    window = 1
    flops_per_step = 100.0

    def __init__(self, name: str = "regression") -> None:
        self.name = name

    def rows(self, seed: int, step: int) -> tuple[Tensor, Tensor]:
        generator = np.random.default_rng([seed, step])
        x = torch.from_numpy(generator.normal(size=(generator.integers(7, 30), 3))).float()
        return x, x @ WEIGHT.T

    def batch(self, seed: int, step: int, part: int, num_parts: int, device: torch.device) -> Batch:
        x, y = self.rows(seed, step)
        rows = range(part, len(x), num_parts)
        return Batch((x[part::num_parts], y[part::num_parts]), len(x), rows)

    def objective(self, model: nn.Module) -> nn.Module:
        return Squares(model)

    def blocks(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"layer": model}

    @torch.no_grad()
    def validate(self, model: nn.Module, num_tokens: int) -> dict[str, Any]:
        x, y = self.rows(99, 0)
        return {"loss": float(((model(x) - y) ** 2).mean()), "rows": len(x), "asked": num_tokens}

    def sample(self, model: nn.Module) -> str:
        return " ".join(f"{value:.2f}" for value in model.state_dict()["weight"].flatten())

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.name}

    def describe(self, steps: int) -> str:
        return f"{steps} steps"

    def save_tokenizer(self, folder: Path) -> None: ...


class Squares(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ((self.model(x) - y) ** 2).sum()


def make(config: TrainConfig, task: Task | None = None) -> Training:
    task = task or Regression()
    torch.manual_seed(1)
    model = nn.Linear(3, 1, bias=False)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1)]
    for group in optimizers[0].param_groups:
        group["peak_lr"] = group["lr"]
    device = torch.device("cpu")
    return Training(config, Ranks(), device, task, model, task.objective(model), [*optimizers])


def constant(config: TrainConfig) -> TrainConfig:
    """At the same rate in every step, however many there are."""
    optimizer = dataclasses.replace(config.optimizer, schedule=ScheduleConfig(name="constant"))
    return dataclasses.replace(config, optimizer=optimizer)


class Events(Listener):
    """Remembers what it was told."""

    def __init__(self, *_: object) -> None:
        self.heard: list[tuple[str, Any]] = []

    @contextmanager
    def listening(self, state: TrainerState, seconds_left: float | None) -> Iterator[None]:
        self.heard.append(("begin", state.step))
        yield
        self.heard.append(("end", state.step))

    def step(self, record: Record, *, steps: int, seconds_left: float, is_logged: bool) -> None:
        self.heard.append(("step", record["step"]))

    def validation(self, record: Record) -> None:
        self.heard.append((record["kind"], record["step"]))

    def sample(self, step: int, text: str) -> None:
        self.heard.append(("sample", step))


def fit(
    config: TrainConfig, run: Run | None = None, task: Task | None = None, listen: Listen = Reporter
) -> Trainer:
    training = make(config, task)
    plan = make_plan(training, Clock()) if run is None else None
    trainer = Trainer(training, run or Run.new(config), Clock(), plan, listen)
    assert trainer.fit() is None
    return trainer


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_the_loss_is_the_mean_over_all_targets_of_an_uneven_batch(
    make_config: MakeConfig, accumulate: int
) -> None:
    training = make(make_config(accumulate=accumulate))
    for step in range(5):
        x, y = Regression().rows(3, step)
        with torch.no_grad():
            expected = ((training.model(x) - y) ** 2).mean()
        result = training.step(step, seed=3, rate_factor=1.0)
        assert result.loss == pytest.approx(float(expected), rel=1e-5)
        assert result.num_targets == len(x)


def test_it_learns_validates_samples_and_counts(make_config: MakeConfig) -> None:
    config = constant(make_config(steps=120, watch__sample_every=60))
    trainer = fit(config)
    assert trainer.training.model.weight.detach() == pytest.approx(WEIGHT, abs=1e-2)
    batches = [Regression().rows(config.seed, step) for step in range(120)]
    assert trainer.state.tokens == sum(len(x) for x, _ in batches)
    validations = [record for record in trainer.run.metrics if record["kind"] == "validation"]
    assert [record["step"] for record in validations] == list(range(4, 121, 4))
    assert validations[-1]["rows"] == len(Regression().rows(99, 0)[0])
    assert "--- step 120 ---\n1.00 -2.00 0.50\n" in trainer.run.samples_file.read_text()


def test_it_resumes_exactly_and_only_on_its_own_data(make_config: MakeConfig) -> None:
    whole = fit(constant(make_config("whole")))
    half = fit(constant(make_config("half", steps=6)))
    longer = constant(make_config("half", steps=12))
    with pytest.raises(InputError, match="not what this run was trained on"):
        fit(longer, half.run, Regression("another"))
    resumed = fit(longer, half.run)
    assert resumed.training.model.weight.equal(whole.training.model.weight)
    assert resumed.state.tokens == whole.state.tokens


def test_who_listens_is_told_and_steers_nothing(make_config: MakeConfig) -> None:
    reported = fit(make_config("reported"))
    trainer = fit(make_config("heard", watch__sample_every=6), listen=Events)
    assert isinstance(trainer.listener, Events)
    expected: list[tuple[str, int]] = [("begin", 0)]
    for step in range(1, 13):
        expected.append(("step", step))
        expected += [("validation", step)] if step % 4 == 0 else []
        expected += [("final", step)] if step == 12 else []
        expected += [("sample", step)] if step % 6 == 0 else []
    # The state is the trainer's own: at the end it stands at the last step.
    assert trainer.listener.heard == [*expected, ("end", 12)]
    assert trainer.training.model.weight.equal(reported.training.model.weight)
    assert trainer.store.steps() == reported.store.steps()
