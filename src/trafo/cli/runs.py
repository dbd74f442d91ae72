"""`trafo runs`: what was trained here, and how well it went."""

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
    """List the runs in a folder: how far each is, its losses, its speed, how long it took."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")] = Path("runs")
    """where the runs are"""
    json: bool = False
    """print everything as JSON"""


def run(options: Options) -> None:
    """Newest first."""
    from trafo.runtime.console import say, show

    rows = [_row(path) for path in _runs(options.folder)]
    if options.json:
        import json

        show(json.dumps(rows, indent=2))
    elif rows:
        show(_table(rows))
    else:
        say(f"no runs in {options.folder} yet; `trafo train FILE` makes one")


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    runs = [path.parent for path in folder.glob("*/config.yaml") if not path.parent.is_symlink()]
    return sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)


def _row(path: Path) -> dict[str, Any]:
    """The last of everything that was recorded."""
    from trafo.train.metrics import read_metrics
    from trafo.train.run import RunFolder

    metrics = RunFolder(path).metrics
    records = read_metrics(metrics) if metrics.exists() else []
    last = {record["kind"]: record for record in records}
    train, validation = last.get("train", {}), last.get("validation", {})
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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    table.add_column("run")
    for name in ("step", "loss", "val loss", "bits/byte", "tokens/s", "time"):
        table.add_column(name, justify="right")
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
