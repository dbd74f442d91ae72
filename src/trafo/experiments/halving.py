"""Successive halving: all arms and sweep points begin, and at each rung only the best continue.

Jamieson and Talwalkar (2016). The learning rate follows the full number of steps, so a run that
continues is the run it would have been without the pause.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from trafo.experiments.execute import Executor
from trafo.experiments.plan import PlannedRun, tokens_per_step
from trafo.experiments.result import Result, measured, read_result
from trafo.experiments.spec import Halving
from trafo.training.run import Run


def make_with_halving(executor: Executor, runs: Sequence[PlannedRun], halving: Halving) -> None:
    """Train the runs rung by rung; the first arm always continues, it is the reference."""
    going = list(runs)
    for share in halving.at:
        rungs = {run.name: rung(run, share) for run in going}
        executor.make([run for run in going if _last_step(run) < rungs[run.name]], rungs)
        if executor.problems:
            return  # without all losses nothing can be decided
        losses = {run.name: _loss_at(run, rungs[run.name]) for run in going}
        kept = survivors(going, losses, halving.keep)
        for run in going:
            if run.cell not in kept and read_result(run.folder) is None:
                _stop(run, rungs[run.name])
        going = [run for run in going if run.cell in kept]
    executor.make(going)


def rung(run: PlannedRun, share: float) -> int:
    """The step of a rung: one after which there is a validation."""
    every = run.config.watch.evaluate_every or 1
    return every * max(1, round(share * run.config.steps / every))


def survivors(runs: Sequence[PlannedRun], losses: dict[str, float], keep: float) -> set[str]:
    """The cells with the lowest mean losses over their seeds, and the best one of the first arm."""
    by_cell: dict[str, list[float]] = defaultdict(list)
    arms: dict[str, str] = {}
    for run in runs:
        by_cell[run.cell].append(losses[run.name])
        arms[run.cell] = run.arm
    means = {cell: fmean(values) for cell, values in by_cell.items()}
    order = sorted(means, key=lambda cell: means[cell])
    kept = set(order[: max(1, math.ceil(keep * len(order)))])
    first = [cell for cell in order if arms[cell] == runs[0].arm]
    return kept | set(first[:1])


def _last_step(run: PlannedRun) -> int:
    return max((record["step"] for record in Run(run.folder).metrics), default=0)


def _loss_at(run: PlannedRun, step: int) -> float:
    """The newest validation loss up to a step; a run that diverged before it has none."""
    result = read_result(run.folder)
    if result is not None and result.status == "diverged" and result.step <= step:
        return math.inf
    records = [r for r in Run(run.folder).metrics if r["step"] <= step]
    kinds = {str(record["kind"]): record for record in records}
    newest = kinds.get("validation") or kinds.get("train")
    return math.inf if newest is None else float(newest["loss"])


def _stop(run: PlannedRun, step: int) -> None:
    found = measured([r for r in Run(run.folder).metrics if r["step"] <= step])
    tokens = step * tokens_per_step(run.config)
    Result(status="stopped", step=step, tokens=tokens, **found).save(run.folder)
