"""`trafo account --measure`: predicted and measured memory of a training step, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

_FOOTNOTE = """\
measured: physical memory above what the process held before, freed memory returned at once
(MALLOC_MMAP_THRESHOLD_=65536); left as it is, the C library keeps some of it for later"""

if TYPE_CHECKING:
    from trafo.account import Measurement, Shape
    from trafo.cli.account.command import Options


def run_measure(options: Options) -> None:
    from trafo.account import measure
    from trafo.cli.account.command import show_json
    from trafo.runtime.progress import progress

    shapes = _shapes(options)
    measurements = []
    with progress("measuring training steps", total=len(shapes), unit="steps") as bar:
        for shape in shapes:
            measurements.append(measure(shape, options.optimizer))
            bar.advance(1)
    if options.json:
        show_json([dataclasses.asdict(m) | {"error": m.error} for m in measurements])
    else:
        _show(measurements)


def _shapes(options: Options) -> Sequence[Shape]:
    """The model that was asked for, or five that differ."""
    from trafo.account import Shape
    from trafo.account.measurement import SHAPES
    from trafo.cli.account.command import asked

    return SHAPES if options.model is None else [Shape(*asked(options))]


def _show(measurements: Sequence[Measurement]) -> None:
    from trafo.account.render import plain_table
    from trafo.runtime.console import show
    from trafo.runtime.sizes import format_size

    table = plain_table("training step", "predicted", "measured", "error")
    for m in measurements:
        sizes = format_size(m.predicted), format_size(m.measured)
        table.add_row(m.name, *sizes, f"{100 * m.error:+.1f} %")
    show(table, _FOOTNOTE)
