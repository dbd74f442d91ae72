"""`trafo runs`: a table of the runs in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trafo.config import Argument, Positional
from trafo.errors import InputError, TrafoError
from trafo.runtime.console import plain_table, say, show, show_json
from trafo.runtime.sizes import format_count, format_duration

if TYPE_CHECKING:
    from rich.table import Table

    from trafo.training.run import Run

_LONGEST_TEXT = 24


@dataclass(frozen=True, kw_only=True)
class Options:
    """List runs, newest first: text, parameters, learning rate, steps, losses, speed and time."""

    folder: Annotated[Positional[Path], Argument(metavar="FOLDER")] = Path("runs")
    """folder that holds the runs"""
    json: bool = False
    """print JSON instead of a table, with more facts"""


def run(options: Options) -> None:
    """Print the table, or JSON."""
    rows = [_row(path) for path in _runs(options.folder)]
    if options.json:
        show_json(rows)
    elif rows:
        show(_table(rows))
    else:
        say(f"no runs in {options.folder} yet; start one with `trafo train FILE`")


def _runs(folder: Path) -> list[Path]:
    if folder == Path("runs") and not folder.exists():
        return []  # nothing trained yet
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), hint="runs are in `runs` by default")
    configs = [*folder.glob("*/config.yaml"), *folder.glob("*/*/config.yaml")]  # of experiments
    runs = [path.parent for path in configs if not path.parent.is_symlink()]
    return sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)


def _row(path: Path) -> dict[str, Any]:
    """The settings and the latest metrics of a run."""
    from trafo.training.run import Run

    run = Run(path)
    records = run.metrics
    train = next((record for record in reversed(records) if record["kind"] == "train"), {})
    validations = [record["loss"] for record in records if record["kind"] == "validation"]
    measured = run.measured or {}
    return _settings(run) | {
        "step": train.get("step", 0),
        "loss": train.get("loss"),
        "validation_loss": measured.get("loss"),
        "best_validation_loss": min(validations, default=None),
        "bits_per_byte": measured.get("bits_per_byte"),
        "tokens_per_second": train.get("tokens_per_second"),
        "seconds": train.get("seconds"),
    }


def _settings(run: Run) -> dict[str, Any]:
    """Text, size and learning rate; None where the config cannot be read."""
    from trafo.account import Workload, account

    try:
        config = run.read_config()
    except TrafoError as error:
        say(f"{error}")
        names = ("data", "architecture", "parameters", "optimizer", "learning_rate")
        return {"run": str(run.path), **dict.fromkeys(names)}
    optimizer = config.optimizer
    return {
        "run": str(run.path),
        "data": [*config.text, *config.pairs] or [str(config.data.tokens)],
        "architecture": config.architecture,
        "parameters": account(config.model_config, Workload(seq=2)).parameters,
        "optimizer": optimizer.name,
        "learning_rate": optimizer.muon_lr if optimizer.name == "muon" else optimizer.lr,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    head = ("run", "text", "size", "lr", "step", "loss", "best", "bits/B", "tok/s", "time")
    table = plain_table("ll" + "r" * 8, head, padding=2)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: dict[str, Any]) -> Iterator[str]:
    name = ", ".join(Path(path).name for path in row["data"] or ["-"])
    yield row["run"]
    yield name if len(name) <= _LONGEST_TEXT else name[: _LONGEST_TEXT - 1] + "…"
    yield "-" if row["parameters"] is None else format_count(row["parameters"])
    yield "-" if row["learning_rate"] is None else f"{row['learning_rate']:g}"
    yield f"{row['step']:,}"
    for key, style in (
        ("loss", ".3f"),
        ("best_validation_loss", ".3f"),
        ("bits_per_byte", ".3f"),
        ("tokens_per_second", ",.0f"),
    ):
        yield "-" if row[key] is None else format(row[key], style)
    yield "-" if row["seconds"] is None else format_duration(row["seconds"])
