"""An experiment -> its runs: every arm, sweep point and seed with the config of its training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from trafo.account import Workload, account, training_flops
from trafo.config import merge, nest, with_values
from trafo.errors import require
from trafo.experiments.spec import Arm, Experiment, Problems
from trafo.runtime.progress import progress
from trafo.training.config import TrainConfig
from trafo.training.start import make_portable

Point = dict[str, Any]

EVALUATE_TOKENS = 16_384
"""held-out tokens of every validation, the same for all runs, unless the base config says so"""
_NUM_VALIDATIONS = 10
_MATCH_TOLERANCE = 0.03  # of the number of parameters; heads make the steps of d_model coarse
_MAX_WIDTH = 1 << 20


@dataclass(frozen=True)
class PlannedRun:
    """One training run of the experiment."""

    arm: str
    point: Point
    """the values of the swept settings"""
    config: TrainConfig

    @property
    def cell(self) -> str:
        """The name that it shares with the runs that differ in nothing but the seed."""
        return cell_name(self.arm, self.point)

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.config.seed

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        assert self.config.out is not None
        return self.config.out

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name


def plan_runs(experiment: Experiment, folder: Path) -> list[PlannedRun]:
    """Plan all runs, seed by seed, with all impossible settings in one error, a line for each."""
    problems = Problems()
    runs: list[PlannedRun] = []
    cells = [(arm, point) for arm in experiment.arms for point in _points(arm)]
    with progress("checking settings", total=len(cells), unit="arms") as bar:
        for arm, point in cells:
            name = cell_name(arm.name, point)
            with problems.collect(f"{experiment.name}: {name}"):
                config = _resolve_config(experiment, arm, point)
                for seed in experiment.seeds:
                    out = (folder / f"{name}_seed{seed}").absolute()
                    mine = dataclasses.replace(config, seed=seed, out=out)
                    runs.append(PlannedRun(arm.name, point, mine))
            bar.advance()
    problems.lines.extend(_find_duplicates(runs, experiment.name))
    problems.raise_if_any()
    return sorted(runs, key=lambda run: experiment.seeds.index(run.seed))


def cell_name(arm: str, point: Point) -> str:
    """Name a cell such as `adamw_lr0.003`, with the whole key where two keys end alike."""
    ends = [key.rpartition(".")[2] for key in point]
    names = [end if ends.count(end) == 1 else key for key, end in zip(point, ends, strict=True)]
    values = map(_format_value, point.values())
    return "_".join([arm, *map("".join, zip(names, values, strict=True))])


def tokens_per_step(config: TrainConfig) -> int:
    """Count the target tokens of an update."""
    if config.translates:
        return config.translation.batch_tokens
    return config.batch_size * config.seq


def flops_per_step(config: TrainConfig) -> int:
    """Count the FLOPs of an update, those of the matrix products, by our own accounting."""
    what = f"FLOPs can be held equal for language models, not for {config.architecture}"
    require(not config.translates, what, "hold steps or tokens equal")
    return training_flops(config.language_model, config.seq, config.batch_size)


def num_parameters(config: TrainConfig) -> int:
    """Count the parameters of the model."""
    return _count_parameters(config.model_config, config.seq)


@lru_cache(maxsize=256)
def _count_parameters(model: Any, seq: int) -> int:
    return account(model, Workload(seq=seq)).parameters


def _points(arm: Arm) -> Iterator[Point]:
    keys = list(arm.sweep)
    for values in product(*arm.sweep.values()):
        yield dict(zip(keys, values, strict=True))


def _resolve_config(experiment: Experiment, arm: Arm, point: Point) -> TrainConfig:
    """Resolve the config of an arm at a point, without seed and folder."""
    config = _apply_changes(experiment, arm, point)
    if arm.match is not None:
        first = _apply_changes(experiment, experiment.arms[0], point)
        config = match_parameters(config, arm.width, num_parameters(first))
    config = _equalize_steps(experiment, config)
    watch = config.watch
    watch = dataclasses.replace(
        watch,
        evaluate_tokens=watch.evaluate_tokens or EVALUATE_TOKENS,
        evaluate_every=watch.evaluate_every or max(1, config.steps // _NUM_VALIDATIONS),
        sample_every=0 if watch.sample_every is None else watch.sample_every,
    )
    return make_portable(dataclasses.replace(config, watch=watch))


def _apply_changes(experiment: Experiment, arm: Arm, point: Point) -> TrainConfig:
    values = merge(arm.settings, nest(point))
    decided_by = {"seed": "seeds", "out": "--out"}
    if experiment.equal != "steps":
        decided_by |= {
            "steps": f"equal: {experiment.equal}",
            "budget": f"equal: {experiment.equal}",
        }
    for key, by in decided_by.items():
        require(key not in values, f"sets {key}, which {by} decides", "leave it out")
    if not values:
        return experiment.base
    return with_values(experiment.base, values, f"{experiment.name}: {cell_name(arm.name, point)}")


def _equalize_steps(experiment: Experiment, config: TrainConfig) -> TrainConfig:
    """Give it as many steps as it takes for the amount of the base config."""
    base = experiment.base
    if experiment.equal == "tokens":
        share = tokens_per_step(base) / tokens_per_step(config)
    elif experiment.equal == "flops":
        share = flops_per_step(base) / flops_per_step(config)
    else:
        return config
    return dataclasses.replace(config, steps=max(1, round(base.steps * share)))


def match_parameters(
    config: TrainConfig,
    key: str,
    target: int,
    count: Callable[[TrainConfig], int] = num_parameters,
    tolerance: float = _MATCH_TOLERANCE,
) -> TrainConfig:
    """Choose the width that brings the number of parameters nearest to `target`."""
    branch, _, name = key.rpartition(".")
    fields = getattr(config.model_config, "__dataclass_fields__", {})
    is_width = branch == config.branch and name in ("d_ff", "d_model") and name in fields
    require(is_width, f"width is {key}", f"choose {config.branch}.d_ff or {config.branch}.d_model")
    # Heads divide the hidden size, and RoPE needs an even share for each.
    unit = 2 * getattr(config.model_config, "num_heads", 1) if name == "d_model" else 1

    def at(units: int) -> TrainConfig:
        # Any: the name of the field is not known to the type checker.
        change: Any = {name: units * unit}
        model: Any = dataclasses.replace(config.model_config, **change)
        parts: Any = {branch: model}
        return dataclasses.replace(config, **parts)

    low, high = 1, 2
    while count(at(high)) < target and high * unit < _MAX_WIDTH:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(at(middle)) <= target else (low, middle)
    best = min((at(low), at(high)), key=lambda config: abs(count(config) - target))
    found = count(best)
    what = f"no {key} gives {target:,} parameters; the nearest is {found:,}"
    require(abs(found / target - 1) <= tolerance, what, "change the arm, or match another width")
    return best


def _find_duplicates(runs: list[PlannedRun], name: str) -> Iterator[str]:
    cells: dict[TrainConfig, str] = {}
    names: set[str] = set()
    for run in runs:
        config = dataclasses.replace(run.config, out=None)
        if config in cells:
            yield f"{name}: {cells[config]} and {run.cell} are the same run; leave one of them out"
        elif run.name in names:
            yield f"{name}: two runs would be called {run.name}; give values that differ more"
        cells.setdefault(config, run.cell)
        names.add(run.name)


def _format_value(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return str(value).replace("/", "-").replace(" ", "")
