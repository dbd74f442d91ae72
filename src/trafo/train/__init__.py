"""Training: a config in, a run's folder out. Read config, build, step, loop in this order.

The package can be called: `trafo.train("stories.txt", budget="5m")` trains as `trafo train` does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.train.run import Run


class _Callable(ModuleType):
    """The function `trafo.train` and the package `trafo.train` share their name."""

    def __call__(
        self,
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
        from trafo.train.start import train_on

        if budget is not None:
            settings["budget"] = budget
        return train_on(text, settings)


sys.modules[__name__].__class__ = _Callable
