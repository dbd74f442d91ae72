"""The result of a run, kept as result.json in its folder: when it is there, the run is done."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.json_text import parse_json
from trafo.training.metrics import Record

Status = Literal["finished", "diverged", "stopped"]

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was measured of a run."""

    status: Status
    """finished; diverged: its loss was not finite, or rose far above the first one; stopped early
    by successive halving"""
    step: int
    """steps made; of a diverged run, the step at which it diverged"""
    tokens: int
    """tokens trained on"""
    loss: float | None = None
    """on held-out tokens, in nats per token; None if it diverged"""
    bits_per_byte: float | None = None
    perplexity: float | None = None
    seconds: float = 0.0
    """wall-clock time, validations and checkpoints included"""
    tokens_per_second: float | None = None
    """of the bare training step, the median over the run"""
    peak_memory: int | None = None
    """peak memory in bytes, without that of the program before the run; None if stopped early"""

    def save(self, folder: Path) -> None:
        """Write it into the folder of its run."""
        with atomic_write(folder / RESULT, "w") as file:
            json.dump(dataclasses.asdict(self), file, indent=1)


def read_result(folder: Path) -> Result | None:
    """The result of a run; None if it is not done."""
    path = folder / RESULT
    if not path.is_file():
        return None
    with storage_errors(path, "reading"):
        text = path.read_text(encoding="utf-8")
    try:
        return Result(**parse_json(text))
    except (TypeError, ValueError) as error:
        hint = "delete it, and the run is measured again"
        raise FormatError(f"is damaged: {error}", where=str(path), hint=hint) from None


def measured(records: list[Record]) -> dict[str, Any]:
    """The fields of a result that are in the metrics of a run."""
    by_kind = {str(record.get("kind")): record for record in records}
    validation = by_kind.get("validation", {})
    speeds = [r["tokens_per_second"] for r in records if r.get("tokens_per_second") is not None]
    return {
        "loss": validation.get("loss"),
        "bits_per_byte": validation.get("bits_per_byte"),
        "perplexity": validation.get("perplexity"),
        "tokens_per_second": median(speeds[1:] or speeds) if speeds else None,  # the first is cold
        "seconds": max((record.get("seconds", 0.0) for record in records), default=0.0),
    }
