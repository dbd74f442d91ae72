"""`trafo runs`: a table of the runs in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Options:
    """List runs, newest first: steps, losses, speed and time."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")] = Path("runs")
    """folder that holds the runs"""
    json: bool = False
    """print JSON instead of a table"""


def run(options: Options) -> None:
    """Print the table, or JSON."""
    from trafo.runtime.console import say, show, show_json

    rows = [_row(path) for path in _runs(options.folder)]
    if options.json:
        show_json(rows)
    elif rows:
        show(_table(rows))
    else:
        say(f"no runs in {options.folder} yet; start one with `trafo train FILE`")


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    configs = [*folder.glob("*/config.yaml"), *folder.glob("*/*/config.yaml")]  # of experiments
    runs = [path.parent for path in configs if not path.parent.is_symlink()]
    return sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)


def _row(path: Path) -> dict[str, Any]:
    """The latest metrics of a run."""
    from trafo.train.run import Run

    run = Run(path)
    train = next((record for record in reversed(run.metrics) if record["kind"] == "train"), {})
    validation = run.measured or {}
    return {
        "run": str(path),
        "step": train.get("step", 0),
        "loss": train.get("loss"),
        "validation_loss": validation.get("loss"),
        "bits_per_byte": validation.get("bits_per_byte"),
        "tokens_per_second": train.get("tokens_per_second"),
        "seconds": train.get("seconds"),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    from trafo.runtime.tables import plain_table

    head = ("run", "step", "loss", "val loss", "bits/byte", "tokens/s", "time")
    table = plain_table("lrrrrrr", head)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: dict[str, Any]) -> Iterator[str]:
    from trafo.runtime.sizes import format_duration

    yield row["run"]
    yield f"{row['step']:,}"
    for key, style in (
        ("loss", ".3f"),
        ("validation_loss", ".3f"),
        ("bits_per_byte", ".3f"),
        ("tokens_per_second", ",.0f"),
    ):
        yield "-" if row[key] is None else format(row[key], style)
    yield "-" if row["seconds"] is None else format_duration(row["seconds"])
