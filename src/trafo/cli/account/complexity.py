"""`trafo account complexity`: how the time of layers grows with the sequence length."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from tyro.conf import arg

from trafo.cli.tokenizer.arguments import OptionalPath

Lengths = Annotated[tuple[int, ...], arg(metavar="INT ...")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Time layers at several sequence lengths, and compare the growth with theory."""

    lengths: Lengths = (256, 512, 1024, 2048, 4096)
    """sequence lengths in tokens"""
    d_model: int = 64
    """hidden size"""
    window: int = 64
    """window of restricted (sliding window) self-attention"""
    json: bool = False
    """print JSON instead of a table"""
    picture: OptionalPath = None
    """plot the times into this file, .png or .svg"""


def run(options: Options) -> None:
    """Measure, print, draw."""
    from trafo.account.growth import measure_growth
    from trafo.runtime.console import say, show, show_json
    from trafo.runtime.tables import plain_table

    growths = measure_growth(options.lengths, d_model=options.d_model, window=options.window)
    if options.json:
        show_json([asdict(growth) | {"exponent": growth.exponent} for growth in growths])
    else:
        ends = [f"at {options.lengths[i]:,}" for i in (0, -1)]
        table = plain_table("lrrrrr", ["layer", "theory", "expected", "measured", *ends])
        for each in growths:
            powers = f"n^{each.expected:.0f}", f"n^{each.exponent:.2f}"
            times = (f"{1000 * each.seconds[i]:.2f} ms" for i in (0, -1))
            table.add_row(each.layer, each.theory, *powers, *times)
        show(table)
    if options.picture is not None:
        from trafo.cli.account.pictures import draw_growth

        draw_growth(growths, options.picture)
        say(f"picture: {options.picture}")
