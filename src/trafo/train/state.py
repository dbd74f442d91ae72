"""Where a training stands: what a checkpoint keeps beside tensors."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from trafo.data.prepare import Dataset
from trafo.errors import FormatError, InputError
from trafo.train.plan import Plan


@dataclass
class State:
    """Changes from step to step."""

    plan: Plan
    step: int = 0
    """updates made so far; also the position in the data, which follows from it"""
    seconds: float = 0.0
    """wall-clock of all sessions of this run"""
    attempt: int = 0
    """how often it went back because of a loss that was no number; decides the batches too"""
    validation_loss: float | None = None
    best_loss: float = math.inf
    """the lowest validation loss of a saved checkpoint"""

    def to_json(self, dataset: Dataset) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        best = None if math.isinf(self.best_loss) else self.best_loss
        return values | {"best_loss": best, "data": describe(dataset)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> State:
        try:
            values = {key: value for key, value in values.items() if key != "data"}
            best = values.pop("best_loss")
            plan = Plan(**values.pop("plan"))
            return cls(plan=plan, best_loss=math.inf if best is None else best, **values)
        except (KeyError, TypeError) as error:
            raise FormatError(f"a checkpoint's state.json is incomplete: {error}") from None


def describe(dataset: Dataset) -> dict[str, Any]:
    """What tells one data set from another, at no cost."""
    return {
        "tokenizer": dataset.tokenizer.hash,
        "training_ids": len(dataset.training),
        "validation_ids": len(dataset.validation),
    }


def check_same_data(saved: dict[str, Any], dataset: Dataset) -> None:
    """A run goes on with the data it began with."""
    if saved != describe(dataset):
        raise InputError(
            "the data is not what this run was trained on so far",
            hint="put the text back as it was, or begin a new run",
        )
