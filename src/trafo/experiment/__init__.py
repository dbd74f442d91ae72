"""Experiments: one file describes arms, sweeps and seeds; the result is runs and a report.

Read spec (what a file says), plan (its runs), execute and worker (how they run), statistics,
summary, and report. The package can be called: `trafo.experiment("question.yaml", "text.txt")` does
what `trafo experiment` does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.experiment.start import Findings


class _Callable(ModuleType):
    """The function `trafo.experiment` and the package `trafo.experiment` share their name."""

    def __call__(
        self,
        asked: str | PathLike[str] | Mapping[str, Any],
        text: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
        *,
        out: str | PathLike[str] | None = None,
        jobs: int | None = None,
        threads: int | None = None,
        on: str | None = None,
    ) -> Findings:
        """Run an experiment: a YAML file, or the same as a dictionary; and return its findings.

        `jobs` runs at a time, with `threads` each; `on` is a Ray cluster: `ray`, or its address.
        `trafo.experiment({"base": {"steps": 300}, "arms": {"pre": {}, "post": {...}}, "seeds": 3},
        "stories.txt", out="runs/norms").records` is a table that pandas reads.
        """
        from trafo.experiment.spec import make_experiment, read_experiment
        from trafo.experiment.start import run_experiment

        texts = (text,) if isinstance(text, str | PathLike) else tuple(text)
        paths = tuple(map(str, texts))
        if isinstance(asked, Mapping):
            name = Path("experiment" if out is None else out).name
            experiment = make_experiment(asked, name, paths)
        else:
            experiment = read_experiment(Path(asked), paths)
        folder = Path(out or Path("runs") / experiment.name)
        return run_experiment(experiment, folder, jobs, threads=threads, on=on)


sys.modules[__name__].__class__ = _Callable
