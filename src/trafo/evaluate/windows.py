"""A long text in windows that fit a model's context: every id but the first is predicted once.

Window k reads the ids from k * stride on, as many as the context holds. All predictions of the
first window count. Of every later one the last `stride` count: the others were counted before and
only give context, at least context - stride ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from trafo.errors import ConfigError, InputError


@dataclass(frozen=True)
class Window:
    """Predicts the id after each of ids[start : start + length], without the first `skipped`."""

    start: int
    length: int
    skipped: int

    @property
    def counted(self) -> int:
        """Number of predictions that count."""
        return self.length - self.skipped


def windows(num_ids: int, context_length: int, stride: int) -> list[Window]:
    """All windows of a text, in order."""
    if not 1 <= stride <= context_length:
        raise ConfigError(
            f"stride is {stride}", hint=f"it must be from 1 to the context, {context_length}"
        )
    inputs = num_ids - 1  # nothing follows the last id
    if inputs < 1:
        raise InputError(f"the text has {num_ids} ids", hint="it needs at least two")
    later = -(-max(0, inputs - context_length) // stride)
    return [
        Window(
            start=k * stride,
            length=min(context_length, inputs - k * stride),
            skipped=0 if k == 0 else context_length - stride,
        )
        for k in range(1 + later)
    ]


def spread(chosen_from: Sequence[Window], max_tokens: int) -> list[Window]:
    """Windows spread evenly over the text: about `max_tokens` predictions, at least one window."""
    if max_tokens < 1:
        raise ConfigError(f"max_tokens is {max_tokens}", hint="it must be at least 1")
    each = max(window.counted for window in chosen_from[-2:])
    number = min(len(chosen_from), max(1, max_tokens // each))
    return [chosen_from[i * len(chosen_from) // number] for i in range(number)]


def batches(in_order: Sequence[Window], batch_size: int) -> Iterator[list[Window]]:
    """Batches of consecutive windows of one shape, so that none needs padding."""
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}", hint="it must be at least 1")
    for _, group in groupby(in_order, key=lambda window: (window.length, window.skipped)):
        alike = list(group)
        for i in range(0, len(alike), batch_size):
            yield alike[i : i + batch_size]
