"""`trafo plot`: loss curves as a PNG file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trafo.cli.arguments import LATEST
from trafo.config import Argument, Positional
from trafo.runtime.console import say, show

if TYPE_CHECKING:
    from trafo.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Options:
    """Plot loss curves by step and wall-clock time; for several runs, their validation losses.

    Of several paths, such as runs/*, those that are not runs are skipped.
    """

    runs: Annotated[Positional[tuple[Path, ...]], Argument(metavar="RUN ...")] = (LATEST,)
    """folders of the runs"""
    out: Path | None = None
    """PNG file; None: loss.png in the run's folder, or runs.png for several runs"""


def run(options: Options) -> None:
    """Read, plot, print the path."""
    from trafo.training.curve import draw_curves
    from trafo.training.run import Run

    runs = list(_distinct(options.runs)) or [Run.open(options.runs[0])]
    default = runs[0].curve_file if len(runs) == 1 else Path("runs.png")
    out = options.out or default
    draw_curves({str(run.path): run.metrics for run in runs}, out)
    show(str(out))


def _distinct(paths: Sequence[Path]) -> Iterator[Run]:
    """Each run once: `runs/latest` is a second name of one. Paths without a curve are skipped."""
    from trafo.training.run import Run

    seen = set()
    for path in sorted(paths, key=lambda path: path.is_symlink()):
        run = Run(path)
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if not run.config_file.is_file() and len(paths) > 1:
            say(f"skipped {path}: not a run")
        elif len(paths) > 1 and not any(record["kind"] == "validation" for record in run.metrics):
            say(f"skipped {path}: not validated yet")
        else:
            yield Run.open(path)
