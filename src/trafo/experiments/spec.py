"""An experiment file (YAML) -> a base config, arms, sweeps, seeds, and what is held equal.

question: Does a gate in the feed-forward layer help at equal parameters?
base: {steps: 300, model: {d_model: 96}}      # settings of `trafo train`; `config: FILE` below it
arms:                                         # named changes; the first arm is the reference
  swiglu: {}
  silu: {model.feed_forward: silu, match: parameters}
sweep:                                        # every value, for every arm
  optimizer.lr: {from: 1e-3, to: 1e-1, points: 5}
seeds: 3                                      # 0, 1, 2; or a list
equal: flops                                  # or steps, tokens, wall-clock
halving: {at: [0.25, 0.5], keep: 0.5}         # stop the worse ones early
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trafo.config import nest, read_yaml, with_values
from trafo.errors import ConfigError, TrafoError, did_you_mean, require, require_at_least
from trafo.training.config import TrainConfig

Tree = dict[str, Any]
Sweep = dict[str, tuple[Any, ...]]

EQUAL = ("steps", "tokens", "flops", "wall-clock")
_KEYS = ("question", "config", "base", "arms", "sweep", "seeds", "equal", "halving", "scaling")
_RANGE = ("from", "to", "points")
_NAME = re.compile(r"[\w.+-]+")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One of the variants that are compared."""

    name: str
    settings: Tree = field(default_factory=dict)
    """changes to the base config"""
    sweep: Sweep = field(default_factory=dict)
    """the values of each swept setting; those of all arms, unless it has its own"""
    match: str | None = None
    """`parameters`: as many as the first arm, by changing a width"""
    width: str = "model.d_ff"
    """the width that is changed"""


@dataclass(frozen=True, kw_only=True)
class Halving:
    """Successive halving: at fractions of the steps, only the best continue."""

    at: tuple[float, ...] = (0.25, 0.5)
    keep: float = 0.5
    """fraction of the arms and sweep points that continue, the best by validation loss"""

    def __post_init__(self) -> None:
        fits = bool(self.at) and all(0 < share < 1 for share in self.at)
        rises = list(self.at) == sorted(set(self.at))
        require(fits and rises, f"halving.at is {list(self.at)}", "it must rise between 0 and 1")
        require(0 < self.keep < 1, f"halving.keep is {self.keep}", "it must be between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Fit a scaling law to the grid of runs, and test it on a larger run."""

    width: str = "model.d_model"
    """the setting that makes a model larger"""
    factor: float = 4.0
    """FLOPs of the run that is predicted, as a multiple of the largest in the grid"""
    resamples: int = 500
    """bootstrap resamples"""

    def __post_init__(self) -> None:
        require(self.factor > 1, f"scaling.factor is {self.factor:g}", "it must be above 1")
        require_at_least(10, **{"scaling.resamples": self.resamples})


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What an experiment file asks."""

    name: str
    base: TrainConfig
    arms: tuple[Arm, ...]
    question: str = ""
    seeds: tuple[int, ...] = (0,)
    equal: str = "steps"
    halving: Halving | None = None
    scaling: Scaling | None = None


class Problems:
    """Collects errors, so that all of them are reported at once, one line each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def collect(self, where: str) -> Iterator[None]:
        """Collect an error of the block, which it ends."""
        try:
            yield
        except TrafoError as error:
            self.lines.append(str(error) if error.where else f"{where}: {error}")

    def raise_if_any(self) -> None:
        """Raise one error with all lines."""
        if self.lines:
            raise ConfigError("\n".join(dict.fromkeys(self.lines)))


def read_experiment(path: str | Path, text: tuple[str, ...] = ()) -> Experiment:
    """Read the experiment of a file, with `text` instead of what it says to train on."""
    path = Path(path)
    return make_experiment(read_yaml(path), path.stem, text, where=str(path), folder=path.parent)


def make_experiment(
    spec: Mapping[str, Any],
    name: str,
    text: tuple[str, ...] = (),
    *,
    where: str = "experiment",
    folder: Path = Path(),
) -> Experiment:
    """Make the experiment that a mapping describes, with all its problems in one error."""
    problems = Problems()
    for key in spec:
        with problems.collect(where):
            hint = did_you_mean(str(key), _KEYS, f"known here: {', '.join(_KEYS)}")
            require(key in _KEYS, f"unknown key {key}", hint)
    base, equal = TrainConfig(), str(spec.get("equal", "steps"))
    parts: Tree = {}
    with problems.collect(where):
        base = _read_base(spec, text, where, folder)
    with problems.collect(where):
        parts["arms"] = tuple(_read_arms(spec, where, problems))
    with problems.collect(where):
        parts["seeds"] = _read_seeds(spec.get("seeds", 1))
    with problems.collect(where):
        _check_equal(equal, base)
    with problems.collect(where):
        parts["halving"] = _read_part(Halving(), spec.get("halving"), where, "halving")
        can_halve = parts["halving"] is None or equal != "wall-clock"
        hint = "hold steps, tokens or flops equal instead of wall-clock"
        require(can_halve, "halving needs a number of steps", hint)
    with problems.collect(where):
        parts["scaling"] = _read_part(Scaling(), spec.get("scaling"), where, "scaling")
    problems.raise_if_any()
    question = str(spec.get("question", ""))
    return Experiment(name=name, question=question, base=base, equal=equal, **parts)


def _read_base(
    spec: Mapping[str, Any], text: tuple[str, ...], where: str, folder: Path
) -> TrainConfig:
    config = TrainConfig()
    if "config" in spec:
        recipe = folder / str(spec["config"])
        config = with_values(config, read_yaml(recipe), str(recipe))
    values = nest(_read_mapping(spec.get("base"), "base"))
    if text:
        values |= {"text": list(text), "pairs": []}
    return with_values(config, values, f"{where}: base") if values else config


def _read_arms(spec: Mapping[str, Any], where: str, problems: Problems) -> Iterator[Arm]:
    common = _read_sweep(spec.get("sweep"), "sweep")
    arms = _read_mapping(spec.get("arms"), "arms") or {"base": {}}
    for name, changes in arms.items():
        with problems.collect(f"{where}: arms.{name}"):
            what = f"{name!r} cannot be the name of an arm"
            require(bool(_NAME.fullmatch(name)), what, "use letters, digits, and . _ + -")
            settings = _read_mapping(changes, f"arms.{name}")
            match = settings.pop("match", None)
            hint = "only parameters can be matched"
            require(match in (None, "parameters"), f"match is {match!r}", hint)
            width = str(settings.pop("width", Arm.width))
            sweep = common | _read_sweep(settings.pop("sweep", None), f"arms.{name}.sweep")
            yield Arm(name=name, settings=nest(settings), sweep=sweep, match=match, width=width)


def _read_sweep(value: object, where: str) -> Sweep:
    sweep = _read_mapping(value, where)
    return {key: _read_values(values, f"{where}.{key}") for key, values in sweep.items()}


def _read_values(value: Any, where: str) -> tuple[Any, ...]:
    """Read a list as it is, and a range as values evenly spaced in their logarithm."""
    if isinstance(value, list | tuple):
        require(len(value) > 0, f"{where} is an empty list", "give at least one value")
        return tuple(value)
    is_range = isinstance(value, Mapping) and sorted(value) == sorted(_RANGE)
    hint = "give a list, or a range such as {from: 1e-4, to: 1e-1, points: 7}"
    require(is_range, f"{where} is {value!r}", hint)
    first, last, points = (value[key] for key in _RANGE)
    are_numbers = all(isinstance(x, int | float) and x > 0 for x in (first, last))
    require(are_numbers, f"{where} runs from {first!r} to {last!r}", "both must be above 0")
    is_count = isinstance(points, int) and points >= 2
    require(is_count, f"{where}.points is {points!r}", "give a whole number from 2")
    spaced = np.geomspace(first, last, points).tolist()
    # Rounded to three figures, and to whole numbers if both ends are.
    are_whole = isinstance(first, int) and isinstance(last, int)
    return tuple(max(1, round(x)) if are_whole else float(f"{x:.3g}") for x in spaced)


def _read_seeds(value: object) -> tuple[int, ...]:
    hint = "give how many, or a list such as [0, 1, 2]"
    if isinstance(value, int) and not isinstance(value, bool):
        require(value >= 1, f"seeds is {value}", hint)
        return tuple(range(value))
    seeds = value if isinstance(value, list | tuple) else ()
    are_numbers = len(seeds) > 0 and all(isinstance(seed, int) for seed in seeds)
    require(are_numbers, f"seeds is {value!r}", hint)
    require(len(set(seeds)) == len(seeds), f"seeds is {list(seeds)}", "a seed is listed twice")
    return tuple(seeds)


def _check_equal(equal: str, base: TrainConfig) -> None:
    hint = did_you_mean(equal, EQUAL, f"choose one of {', '.join(EQUAL)}")
    require(equal in EQUAL, f"equal is {equal!r}", hint)
    has_budget = base.budget is not None
    if equal == "wall-clock":
        require(has_budget, "equal: wall-clock without base.budget", "set it, such as budget: 60s")
    else:
        hint = "leave it out, or hold wall-clock equal"
        require(not has_budget, f"equal: {equal}, but base.budget is {base.budget}", hint)


def _read_part(default: Any, value: object, where: str, key: str) -> Any:
    """Read the settings below a key, where `true` stands for the defaults."""
    if value is None or value is False:
        return None
    return with_values(
        default, {} if value is True else _read_mapping(value, key), f"{where}: {key}"
    )


def _read_mapping(value: Any, where: str) -> Tree:
    if value is None:
        return {}
    require(isinstance(value, Mapping), f"{where}: expected keys below it, got {value!r}")
    return {str(key): item for key, item in value.items()}
