"""Training: a config in, a run's folder out. Read config, build, step, loop in this order."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.training.run import Run


def train(
    text: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    budget: str | None = None,
    **settings: Any,
) -> Run:
    """Train a language model on text files, with sizes that suit them, and return its run.

    `pairs=["train.en", "train.de"]` instead of text trains a translation model. Settings are
    those of the command line: `steps=500`, `out="runs/mine"`, `model={"d_model": 256}`,
    `optimizer={"lr": 1e-3}`.
    """
    from trafo.training.start import train_on  # imports torch

    if budget is not None:
        settings["budget"] = budget
    return train_on(text, settings)
