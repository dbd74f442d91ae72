"""Experiments: one file describes arms, sweeps and seeds, the result is runs and a report.

Read spec (what a file says), plan (its runs), start (the order of the work), execute and worker
(how runs are trained), results (means and differences), and report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.experiments.start import Findings


def experiment(
    question: str | PathLike[str] | Mapping[str, Any],
    text: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    out: str | PathLike[str] | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    on: str | None = None,
) -> Findings:
    """Run an experiment, given as a YAML file or as a dictionary, and return its findings.

    `jobs` runs at a time, with `threads` each; `on` is a Ray cluster: `ray`, or its address.
    `trafo.experiment({"base": {"steps": 300}, "arms": {"pre": {}, "post": {...}}, "seeds": 3},
    "stories.txt", out="runs/norms").records` is a table that pandas reads.
    """
    from trafo.experiments.spec import make_experiment, read_experiment  # imports torch
    from trafo.experiments.start import run_experiment

    texts = (text,) if isinstance(text, str | PathLike) else tuple(text)
    paths = tuple(map(str, texts))
    if isinstance(question, Mapping):
        name = Path("experiment" if out is None else out).name
        spec = make_experiment(question, name, paths)
    else:
        spec = read_experiment(Path(question), paths)
    folder = Path(out or Path("runs") / spec.name)
    return run_experiment(spec, folder, jobs, threads=threads, on=on)
