"""`trafo plot`: loss curves as a PNG file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from trafo.cli.tokenizer.arguments import OptionalPath


@dataclass(frozen=True, kw_only=True)
class Options:
    """Plot loss curves by step and wall-clock time; for several runs, their validation losses."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")] = (Path("runs/latest"),)
    """folders of the runs"""
    out: OptionalPath = None
    """PNG file; None: loss.png in the run's folder, or runs.png for several runs"""


def run(options: Options) -> None:
    """Read, plot, print the path."""
    from trafo.runtime.console import show
    from trafo.train.curve import draw_curves
    from trafo.train.run import Run

    runs = [Run.open(path) for path in options.runs]
    default = runs[0].curve_file if len(runs) == 1 else Path("runs.png")
    out = options.out or default
    draw_curves({str(run.path): run.metrics for run in runs}, out)
    show(str(out))
