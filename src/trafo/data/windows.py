"""Ids -> batches: windows of a token file, drawn at random, the same ones every time.

A window is `context_length` ids and, shifted by one, the ids that follow them. Which windows make
up step t is a function of the seed and t alone. So a run can resume at any step without replaying
the others, and how a batch is split over ranks or accumulation steps changes nothing: row i of
step t is always the same window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from trafo.errors import require, require_at_least

WindowBatch = tuple[Int[Tensor, "batch seq"], Int[Tensor, "batch seq"]]
TokenArray = NDArray[np.integer]


def num_windows(num_tokens: int, context_length: int) -> int:
    """Count the possible windows, of which there must be one."""
    require_at_least(1, context_length=context_length)
    require(
        num_tokens > context_length,
        f"{num_tokens:,} tokens are too few for a context_length of {context_length:,}",
        "use more text or a shorter context_length",
    )
    return num_tokens - context_length


def take_windows(
    tokens: TokenArray,
    starts: NDArray[np.int64],
    context_length: int,
    device: torch.device | str = "cpu",
) -> WindowBatch:
    """The windows that begin at `starts`, and the id after each of their ids."""
    places = starts[:, None] + np.arange(context_length + 1)
    rows = torch.from_numpy(tokens[places].astype(np.int64))
    if torch.device(device).type != "cpu":
        rows = rows.to(device)
    return rows[:, :-1], rows[:, 1:]


def get_batch(
    tokens: TokenArray,
    batch_size: int,
    context_length: int,
    device: torch.device | str = "cpu",
    generator: np.random.Generator | None = None,
) -> WindowBatch:
    """Draw a random batch of windows, by numpy's default generator unless one is given."""
    generator = generator or np.random.default_rng()
    starts = generator.integers(0, num_windows(len(tokens), context_length), batch_size)
    return take_windows(tokens, starts, context_length, device)


@dataclass(frozen=True)
class WindowSampler:
    """The batches of a run, by step."""

    tokens: TokenArray
    batch_size: int
    context_length: int
    seed: int = 0

    def __post_init__(self) -> None:
        num_windows(len(self.tokens), self.context_length)
        require_at_least(1, batch_size=self.batch_size)

    def starts(self, step: int) -> NDArray[np.int64]:
        """Where the windows of a step begin."""
        generator = np.random.default_rng([self.seed, step])
        most = num_windows(len(self.tokens), self.context_length)
        return generator.integers(0, most, self.batch_size)

    def batch(
        self,
        step: int,
        part: int = 0,
        num_parts: int = 1,
        device: torch.device | str = "cpu",
    ) -> WindowBatch:
        """The rows of a step, or one of several equal parts of them."""
        require(
            self.batch_size % num_parts == 0,
            f"a batch of {self.batch_size} rows cannot be split into {num_parts} equal parts",
            "choose a multiple of ranks times accumulation steps",
        )
        rows = self.batch_size // num_parts
        starts = self.starts(step)[part * rows : (part + 1) * rows]
        return take_windows(self.tokens, starts, self.context_length, device)
