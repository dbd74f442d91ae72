"""`trafo plot`: the losses of runs as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from trafo.cli.tokenizer.arguments import OptionalPath


@dataclass(frozen=True, kw_only=True)
class Options:
    """Draw losses by step and by wall-clock: both of one run, the validation losses of several."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")] = (Path("runs/latest"),)
    """the folders of the runs"""
    out: OptionalPath = None
    """the picture; loss.png in the folder of a single run, else runs.png"""


def run(options: Options) -> None:
    """Read, draw, say where it is."""
    from trafo.runtime.console import show
    from trafo.train.curve import draw_curves
    from trafo.train.metrics import read_metrics
    from trafo.train.run import RunFolder

    folders = [RunFolder.existing(path) for path in options.runs]
    runs = {str(folder.path): read_metrics(folder.metrics) for folder in folders}
    default = folders[0].curve if len(folders) == 1 else Path("runs.png")
    out = options.out or default
    draw_curves(runs, out)
    show(str(out))
