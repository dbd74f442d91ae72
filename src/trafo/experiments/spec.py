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

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trafo.config import with_values
from trafo.config.load import nested
from trafo.config.yaml_file import read_yaml
from trafo.errors import ConfigError, TrafoError, did_you_mean, require, require_at_least
from trafo.training.config import TrainConfig

Tree = dict[str, Any]
Sweep = dict[str, tuple[Any, ...]]

EQUAL = ("steps", "tokens", "flops", "wall-clock")
_KEYS = ("question", "config", "base", "arms", "sweep", "seeds", "equal", "halving", "scaling")
_ARM_KEYS = ("match", "width", "sweep")
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
        require(self.factor > 1, f"scaling.factor is {self.factor}", "it must be above 1")
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
    def noted(self, where: str) -> Iterator[None]:
        """Inside, an error ends the block and is noted."""
        try:
            yield
        except TrafoError as error:
            self.lines.append(str(error) if error.where else f"{where}: {error}")

    def raise_if_any(self) -> None:
        """One error with all lines."""
        if self.lines:
            raise ConfigError("\n".join(dict.fromkeys(self.lines)))


def read_experiment(path: str | Path, text: tuple[str, ...] = ()) -> Experiment:
    """The experiment of a file; `text` replaces what it says to train on."""
    path = Path(path)
    return make_experiment(read_yaml(path), path.stem, text, where=str(path), folder=path.parent)


def make_experiment(
    asked: Mapping[str, Any],
    name: str,
    text: tuple[str, ...] = (),
    *,
    where: str = "experiment",
    folder: Path = Path(),
) -> Experiment:
    """The experiment that a mapping describes; all its problems in one error."""
    problems = Problems()
    problems.lines.extend(_unknown_keys(asked, where))
    base, equal = TrainConfig(), "steps"
    arms: tuple[Arm, ...] = ()
    seeds: tuple[int, ...] = ()
    halving = scaling = None
    with problems.noted(where):
        base = _base(asked, text, where, folder)
    with problems.noted(where):
        arms = tuple(_arms(asked, where, problems))
    with problems.noted(where):
        seeds = _seeds(asked.get("seeds", 1))
    with problems.noted(where):
        equal = _equal(str(asked.get("equal", "steps")), base)
    with problems.noted(where):
        halving = _halving(asked.get("halving"), equal)
    with problems.noted(where):
        scaling = _part(Scaling, asked.get("scaling"), "scaling")
    problems.raise_if_any()
    return Experiment(
        name=name,
        question=str(asked.get("question", "")),
        base=base,
        arms=arms,
        seeds=seeds,
        equal=equal,
        halving=halving,
        scaling=scaling,
    )


def _unknown_keys(asked: Mapping[str, Any], where: str) -> Iterator[str]:
    for key in asked:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS, f"known here: {', '.join(_KEYS)}")
            yield f"{where}: unknown key {key}; {hint}"


def _base(asked: Mapping[str, Any], text: tuple[str, ...], where: str, folder: Path) -> TrainConfig:
    config = TrainConfig()
    if "config" in asked:
        recipe = folder / str(asked["config"])
        config = with_values(config, read_yaml(recipe), str(recipe))
    values = nested(_mapping(asked.get("base"), "base"))
    if text:
        values |= {"text": list(text), "pairs": []}
    return with_values(config, values, f"{where}: base") if values else config


def _arms(asked: Mapping[str, Any], where: str, problems: Problems) -> Iterator[Arm]:
    common = _sweep(asked.get("sweep"), "sweep")
    arms = _mapping(asked.get("arms"), "arms") or {"base": {}}
    for name, settings in arms.items():
        with problems.noted(f"{where}: arms.{name}"):
            require(
                bool(_NAME.fullmatch(str(name))),
                f"{name!r} cannot be the name of an arm",
                "use letters, digits, and . _ + -",
            )
            yield _arm(str(name), _mapping(settings, f"arms.{name}"), common)


def _arm(name: str, given: Tree, common: Sweep) -> Arm:
    match = given.get("match")
    hint = "only parameters can be matched"
    require(match in (None, "parameters"), f"match is {match!r}", hint)
    width = str(given.get("width", Arm.width))
    return Arm(
        name=name,
        settings=nested({key: value for key, value in given.items() if key not in _ARM_KEYS}),
        sweep=common | _sweep(given.get("sweep"), f"arms.{name}.sweep"),
        match=match,
        width=width,
    )


def _sweep(given: object, where: str) -> Sweep:
    return {key: _values(value, f"{where}.{key}") for key, value in _mapping(given, where).items()}


def _values(given: object, where: str) -> tuple[Any, ...]:
    """A list as it is; from, to and points: as many values, evenly spaced in their logarithm."""
    if isinstance(given, list | tuple):
        require(len(given) > 0, f"{where} is an empty list", "give at least one value")
        return tuple(given)
    is_range = isinstance(given, Mapping) and sorted(given) == sorted(_RANGE)
    hint = "give a list, or a range such as {from: 1e-4, to: 1e-1, points: 7}"
    require(is_range, f"{where} is {given!r}", hint)
    assert isinstance(given, Mapping)
    first, last, points = (given[key] for key in _RANGE)
    are_numbers = all(isinstance(x, int | float) and x > 0 for x in (first, last))
    require(are_numbers, f"{where} runs from {first!r} to {last!r}", "both must be above 0")
    is_count = isinstance(points, int) and points >= 2
    require(is_count, f"{where}.points is {points!r}", "give a whole number from 2")
    return tuple(_spaced(first, last, points))


def _spaced(first: float, last: float, points: int) -> Iterator[float | int]:
    """Rounded to three figures, and to whole numbers if both ends are."""
    are_whole = isinstance(first, int) and isinstance(last, int)
    for index in range(points):
        value = math.exp(math.log(first) + index / (points - 1) * math.log(last / first))
        yield max(1, round(value)) if are_whole else float(f"{value:.3g}")


def _seeds(given: object) -> tuple[int, ...]:
    hint = "give how many, or a list such as [0, 1, 2]"
    if isinstance(given, int) and not isinstance(given, bool):
        require(given >= 1, f"seeds is {given}", hint)
        return tuple(range(given))
    is_list = isinstance(given, list | tuple) and given and all(isinstance(s, int) for s in given)
    require(bool(is_list), f"seeds is {given!r}", hint)
    assert isinstance(given, list | tuple)
    require(len(set(given)) == len(given), f"seeds is {list(given)}", "a seed is listed twice")
    return tuple(given)


def _equal(equal: str, base: TrainConfig) -> str:
    hint = did_you_mean(equal, EQUAL, f"choose one of {', '.join(EQUAL)}")
    require(equal in EQUAL, f"equal is {equal!r}", hint)
    has_budget = base.budget is not None
    if equal == "wall-clock":
        require(has_budget, "equal: wall-clock without base.budget", "set it, such as budget: 60s")
    else:
        hint = "leave it out, or hold wall-clock equal"
        require(not has_budget, f"equal: {equal}, but base.budget is {base.budget}", hint)
    return equal


def _halving(given: object, equal: str) -> Halving | None:
    halving: Halving | None = _part(Halving, given, "halving")
    has_steps = halving is None or equal != "wall-clock"
    hint = "hold steps, tokens or flops equal instead of wall-clock"
    require(has_steps, "halving needs a number of steps", hint)
    return halving


def _part(cls: type[Any], given: object, where: str) -> Any:
    """A dataclass from the keys below `where`; `true` stands for its defaults."""
    if given is None or given is False:
        return None
    values = {} if given is True else _mapping(given, where)
    known = list(cls.__dataclass_fields__)
    for key in values:
        what = f"unknown key {where}.{key}"
        require(key in known, what, did_you_mean(key, known))
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def _mapping(given: object, where: str) -> Tree:
    if given is None:
        return {}
    what = f"{where}: expected keys below it, got {given!r}"
    require(isinstance(given, Mapping), what)
    assert isinstance(given, Mapping)
    return {str(key): value for key, value in given.items()}
