"""`trafo account complexity`: how the cost of layers grows with the length of the sequence."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trafo.account.growth import Growth
    from trafo.cli.account.command import Options


def run_complexity(options: Options) -> None:
    from trafo.account.growth import LENGTHS, draw_growth, measure_growth
    from trafo.cli.account.command import show_json
    from trafo.runtime.console import say

    growths = measure_growth(
        options.lengths or LENGTHS,
        d_model=64 if options.d_model is None else options.d_model,
        window=64 if options.window is None else options.window,
    )
    if options.json:
        show_json([dataclasses.asdict(g) | {"exponent": g.exponent} for g in growths])
    else:
        _show(growths)
    if options.picture is not None:
        draw_growth(growths, options.picture)
        say(f"picture: {options.picture}")


def _show(growths: list[Growth]) -> None:
    from trafo.account.render import plain_table
    from trafo.runtime.console import show

    ends = [f"at {growths[0].lengths[i]:,}" for i in (0, -1)]
    table = plain_table("layer", "theory", "expected", "measured", *ends)
    for growth in growths:
        table.add_row(
            growth.layer,
            growth.theory,
            f"n^{growth.expected:.0f}",
            f"n^{growth.exponent:.2f}",
            *(f"{1000 * growth.seconds[i]:.2f} ms" for i in (0, -1)),
        )
    show(table)
