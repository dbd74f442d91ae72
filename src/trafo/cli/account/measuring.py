"""`trafo account --measure`: predicted and measured memory of a training step, side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from trafo.account import Measurement, Shape
    from trafo.optim.config import OptimizerName

_FOOTNOTE = """
measured: physical memory above what the process held before, freed memory returned at once
(MALLOC_MMAP_THRESHOLD_=65536); by default, the C library keeps some of it for later"""


def run(shapes: Sequence[Shape], optimizer: OptimizerName, *, as_json: bool) -> None:
    """Predict and measure each of them."""
    from trafo.account import measure
    from trafo.runtime.console import show, show_json
    from trafo.runtime.progress import progress

    measurements = []
    with progress("measuring training steps", total=len(shapes), unit="steps") as bar:
        for shape in shapes:
            measurements.append(measure(shape, optimizer))
            bar.advance(1)
    if as_json:
        show_json([asdict(m) | {"error": m.error} for m in measurements])
    else:
        show(_table(measurements), _FOOTNOTE)


def _table(measurements: Sequence[Measurement]) -> Table:
    from trafo.runtime.sizes import format_size
    from trafo.runtime.tables import plain_table

    table = plain_table("lrrr", ["training step", "predicted", "measured", "error"])
    for m in measurements:
        sizes = format_size(m.predicted), format_size(m.measured)
        table.add_row(m.name, *sizes, f"{100 * m.error:+.1f} %")
    return table
