"""`trafo account complexity`: how the time of layers grows with the sequence length."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from trafo.cli.tokenizer.arguments import OptionalPath

if TYPE_CHECKING:
    from rich.table import Table

    from trafo.account.growth import Growth

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

    growths = measure_growth(options.lengths, d_model=options.d_model, window=options.window)
    if options.json:
        show_json([asdict(growth) | {"exponent": growth.exponent} for growth in growths])
    else:
        show(_table(growths))
    if options.picture is not None:
        from trafo.cli.account.pictures import draw_growth

        draw_growth(growths, options.picture)
        say(f"picture: {options.picture}")


def _table(growths: list[Growth]) -> Table:
    from trafo.runtime.tables import plain_table

    ends = [f"at {growths[0].lengths[i]:,}" for i in (0, -1)]
    table = plain_table("lrrrrr", ["layer", "theory", "expected", "measured", *ends])
    for growth in growths:
        table.add_row(
            growth.layer,
            growth.theory,
            f"n^{growth.expected:.0f}",
            f"n^{growth.exponent:.2f}",
            *(f"{1000 * growth.seconds[i]:.2f} ms" for i in (0, -1)),
        )
    return table
