"""metrics.jsonl -> loss.png: loss curves by step and by wall-clock time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.runtime.atomic import atomic_write
from trafo.training.metrics import Record, describe_validation, newest_validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = NDArray[np.float64]

_TRAINING, _SMOOTH, _VALIDATION = "#9db4c8", "#4a6d8c", "#c8442c"
_LARGEST = 1e100
_MOST_WINDOWS = 100


def draw_curves(runs: Mapping[str, Sequence[Record]], path: str | Path) -> None:
    """The losses of one run, by name; of several, bits per byte, which compares vocabularies."""
    from matplotlib.figure import Figure

    if not any(_points(records, "train", "step")[0].size for records in runs.values()):
        raise InputError("nothing to plot yet: no step has been recorded")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    by_step, by_clock = figure.subplots(1, 2, sharey=True)
    for axes, clock, label in ((by_step, "step", "step"), (by_clock, "seconds", "minutes")):
        scale = 60.0 if clock == "seconds" else 1.0
        if len(runs) == 1:
            _draw_one(axes, next(iter(runs.values())), clock, scale)
        else:
            _draw_several(axes, runs, clock, scale)
        axes.set_xlabel(label)
        axes.grid(alpha=0.25)
        axes.spines["top"].set_visible(False)
    by_step.legend(frameon=False)
    if len(runs) == 1:
        by_step.set_ylabel("loss in nats per token")
        name, records = next(iter(runs.items()))
        figure.suptitle(name + _result(records))
        _add_bits_axis(by_clock, records)
    else:
        by_step.set_ylabel("bits per byte, held-out text")
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)


def _draw_one(axes: Axes, records: Sequence[Record], clock: str, scale: float) -> None:
    at, losses = _points(records, "train", clock)
    axes.plot(at / scale, losses, color=_TRAINING, linewidth=0.7, alpha=0.6)
    axes.plot(at / scale, _smooth(losses), color=_SMOOTH, linewidth=1.4, label="training")
    at, losses = _points(records, "validation", clock)
    if at.size:
        axes.plot(at / scale, losses, "o-", color=_VALIDATION, markersize=3, label="validation")
    at, losses = _points(records, "final", clock)
    if at.size:
        axes.plot(
            at[-1] / scale, losses[-1], "D", color=_VALIDATION, fillstyle="none", label="final"
        )


def _draw_several(
    axes: Axes, runs: Mapping[str, Sequence[Record]], clock: str, scale: float
) -> None:
    for name, records in runs.items():
        at, bits = _points(records, "validation", clock, "bits_per_byte")
        axes.plot(at / scale, bits, "o-", markersize=3, label=name)


def _result(records: Sequence[Record]) -> str:
    """The figure that the terminal prints: the newest validation."""
    found = newest_validation(records) or {}
    if not _can_be_drawn(found.get("loss")):
        return ""
    loss, bits = f": validation loss {found['loss']:.3f}", found.get("bits_per_byte")
    in_bits = f", {bits:.3f} bits per byte" if _can_be_drawn(bits) else ""
    return f"{loss}{in_bits}, {describe_validation(found)}"


def _add_bits_axis(axes: Axes, records: Sequence[Record]) -> None:
    """The same curve read in bits per byte, on the right: one is a multiple of the other."""
    found = newest_validation(records) or {}
    loss, bits = (found.get(name) or 0.0 for name in ("loss", "bits_per_byte"))
    if 0 < loss < _LARGEST and 0 < bits < _LARGEST:

        def to_bits(losses: Any) -> Any:
            return losses * (bits / loss)

        def to_loss(values: Any) -> Any:
            return values * (loss / bits)

        right = axes.secondary_yaxis("right", functions=(to_bits, to_loss))
        right.set_ylabel("bits per byte")


def _points(
    records: Sequence[Record], kind: str, clock: str, value: str = "loss"
) -> tuple[Numbers, Numbers]:
    both = (clock, value)
    of_kind = [record for record in records if record.get("kind") == kind]
    chosen = [r for r in of_kind if all(_can_be_drawn(r.get(name)) for name in both)]
    at = np.array([record[clock] for record in chosen], dtype=np.float64)
    return at, np.array([record[value] for record in chosen], dtype=np.float64)


def _can_be_drawn(value: float | None) -> bool:
    """Whether Matplotlib can draw it: a damaged file may hold any number."""
    return value is not None and not abs(value) > _LARGEST  # NaN is a gap in the curve


def _smooth(values: Numbers) -> Numbers:
    """The mean over a window around each value, shorter at both ends."""
    half = len(values) // _MOST_WINDOWS
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    means: Numbers = (sums[high] - sums[low]) / (high - low)
    return means
