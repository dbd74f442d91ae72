"""How to generate: which token comes next, and when it is enough. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from trafo.errors import ConfigError

Kernel = Literal["readable", "compiled", "auto"]


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """The defaults draw from the model's own distribution; `temperature=0` is greedy.

    The order is: repetition penalty, temperature, top-k, top-p, min-p, each on what the one before
    has left.
    """

    max_new_tokens: int = 128
    """stop after this many tokens"""
    temperature: float = 1.0
    """below 1 likely tokens become likelier; 0 always takes the likeliest"""
    top_k: int | None = None
    """choose among this many likeliest tokens"""
    top_p: float = 1.0
    """choose among the fewest likeliest tokens that have this probability together"""
    min_p: float = 0.0
    """leave out tokens less likely than this share of the likeliest one's probability"""
    repetition_penalty: float = 1.0
    """above 1 tokens that were there before, in the prompt too, become less likely"""
    seed: int = 0
    """the same seed gives the same text"""
    num_samples: int = 1
    """completions of each prompt"""
    stop: tuple[str, ...] = ()
    """end before any of these strings; they are not part of the completion"""
    end_token: str | None = None
    """the special token that ends a completion; None: those that the model's files name"""
    ignore_end: bool = False
    """go on past the end token"""
    allow_special: bool = False
    """take special tokens written in a prompt as such, not as plain text"""
    logprobs: int | None = None
    """give log-probabilities, and so many alternatives of each token; 0 is none of them"""
    kept_share: float = 0.5
    """where the context is full, go on from the newest part of it, this share"""
    kernel: Kernel = "readable"
    """what computes a token: the model itself, kernels compiled for this processor, or, with auto,
    those kernels wherever they can do it"""

    def __post_init__(self) -> None:
        self._require("max_new_tokens", self.max_new_tokens >= 0, "0 or more")
        self._require("temperature", 0.0 <= self.temperature < math.inf, "0 or more")
        self._require("top_k", self.top_k is None or self.top_k >= 1, "1 or more")
        self._require("top_p", 0.0 < self.top_p <= 1.0, "more than 0 and at most 1")
        self._require("min_p", 0.0 <= self.min_p <= 1.0, "from 0 to 1")
        self._require("repetition_penalty", 0.0 < self.repetition_penalty < math.inf, "above 0")
        self._require("seed", self.seed >= 0, "0 or more")
        self._require("num_samples", self.num_samples >= 1, "1 or more")
        is_list = not isinstance(self.stop, str)
        self._require("stop", is_list and all(self.stop), "a list of strings that are not empty")
        self._require("logprobs", self.logprobs is None or self.logprobs >= 0, "0 or more")
        self._require("kept_share", 0.0 < self.kept_share <= 1.0, "more than 0 and at most 1")
        self._require("kernel", self.kernel in get_args(Kernel), "readable, compiled or auto")

    def _require(self, name: str, fits: bool, right: str) -> None:
        if not fits:
            raise ConfigError(f"{name} is {getattr(self, name)!r}", hint=f"it must be {right}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0
