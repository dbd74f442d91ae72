"""SIGINT and SIGTERM: saved, an exit code that says so, a line that says how to go on."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from tests.processes import start_trafo
from tests.training.conftest import MakeConfig
from tests.training.test_exact_resume import assert_same_run

from trafo.checkpoint.store import CheckpointStore
from trafo.cli.main import main
from trafo.config import to_yaml
from trafo.training import start
from trafo.training.metrics import read_metrics

STEPS = 100
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGTERM],
        pytest.param([signal.SIGINT, signal.SIGTERM], marks=pytest.mark.slow),
    ],
    ids=lambda signals: " ".join(number.name for number in signals),
)
def test_interrupted_runs_are_saved_and_resume_exactly(
    make_config: MakeConfig, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    straight, broken = (
        make_config(name, steps=STEPS, checkpoint__every=STEPS, watch__evaluate_every=STEPS)
        for name in ("straight", "broken")
    )
    start.train(straight)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(broken))
    assert broken.out is not None
    command, last = ["train", "--config", str(recipe)], 0
    for number in signals:
        said = tmp_path / f"{number.name}.txt"
        process = start_trafo(command, said)
        _wait_for_step(broken.out / "metrics.jsonl", last + 3, process)
        os.kill(process.pid or 0, number)
        process.join(timeout=60)
        assert process.exitcode == CODES[number], said.read_text()
        (step,) = CheckpointStore(broken.out / "checkpoints").steps()[-1:]
        assert last + 3 <= step < STEPS
        line = said.read_text().splitlines()[-1]
        assert line.startswith(f"{number.name}: saved at step {step}; continue with `trafo resume ")
        command, last = line.split("`")[1].split()[-2:], step
    assert main([*command, "--quiet"]) == 0
    assert_same_run(straight.out, broken.out)


def _wait_for_step(metrics: Path, step: int, process: ForkServerProcess) -> None:
    deadline = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < deadline:
        if metrics.exists() and any(record["step"] >= step for record in read_metrics(metrics)):
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not seen in time")
