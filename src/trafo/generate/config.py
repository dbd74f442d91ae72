"""Settings of generation (sampling, stop conditions) and of the engine. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from trafo.errors import require, require_at_least, require_choice

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float64, Int64

Kernel = Literal["readable", "compiled", "auto"]
WeightDtype = Literal["float32", "int8"]


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """The defaults sample from the model's own distribution; `temperature=0` is greedy decoding.

    Order: repetition, frequency and presence penalty, logit bias, temperature, top-k, top-p,
    min-p, each on the result of the one before.
    """

    max_new_tokens: int = 128
    """maximum number of new tokens"""
    temperature: float = 1.0
    """sampling temperature: below 1 favours likely tokens; 0 is greedy decoding"""
    top_k: int | None = None
    """top-k sampling: only the k likeliest tokens"""
    top_p: float = 1.0
    """nucleus sampling: smallest set of tokens with total probability p"""
    min_p: float = 0.0
    """min-p sampling: only tokens at least p times as likely as the likeliest one"""
    repetition_penalty: float = 1.0
    """repetition penalty: above 1, tokens of the prompt and the text so far become less likely"""
    frequency_penalty: float = 0.0
    """frequency penalty: subtracted from a token's logit for each time it was generated"""
    presence_penalty: float = 0.0
    """presence penalty: subtracted from the logit of tokens that were generated at all"""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """logit bias: token ids and what is added to their logits"""
    seed: int = 0
    """random seed: the same seed gives the same text"""
    num_samples: int = 1
    """completions per prompt"""
    stop: tuple[str, ...] = ()
    """stop strings: end before any of these; they are not part of the completion"""
    end_token: str | None = None
    """end token: special token that ends a completion; None: the model's own"""
    ignore_end: bool = False
    """continue past the end token"""
    allow_special: bool = False
    """parse special tokens in prompts; otherwise they are plain text"""
    logprobs: int | None = None
    """log-probabilities, with this many alternatives per token; 0: no alternatives"""
    kept_share: float = 0.5
    """sliding window: fraction of the context that is kept when it is full"""
    kernel: Kernel = "readable"
    """decoding kernels: readable (the model itself), compiled (for this processor), or auto
    (compiled where possible)"""

    def __post_init__(self) -> None:
        require_at_least(0, max_new_tokens=self.max_new_tokens, temperature=self.temperature)
        require_at_least(0, seed=self.seed, logprobs=self.logprobs)
        require_at_least(1, top_k=self.top_k)
        require_choice(get_args(Kernel), kernel=self.kernel)
        self._require("top_p", 0.0 < self.top_p <= 1.0, "more than 0 and at most 1")
        self._require("min_p", 0.0 <= self.min_p <= 1.0, "from 0 to 1")
        self._require("repetition_penalty", 0.0 < self.repetition_penalty < math.inf, "above 0")
        for name in ("frequency_penalty", "presence_penalty"):
            self._require(name, math.isfinite(getattr(self, name)), "a finite number")
        is_bias = all(0 <= i < 2**31 and math.isfinite(bias) for i, bias in self.logit_bias)
        self._require("logit_bias", is_bias, "pairs of an id and a finite number")
        self._require("num_samples", 1 <= self.num_samples <= 10**6, "from 1 to 1,000,000")
        is_list = isinstance(self.stop, Sequence) and not isinstance(self.stop, str)
        fits = is_list and all(isinstance(text, str) and text for text in self.stop)
        self._require("stop", fits, "a list of strings that are not empty")
        self._require("kept_share", 0.0 < self.kept_share <= 1.0, "more than 0 and at most 1")

    def _require(self, name: str, fits: bool, right: str) -> None:
        require(fits, f"{name} is {getattr(self, name)!r}", f"it must be {right}")

    @property
    def looks_back(self) -> bool:
        """Whether the next token depends on which tokens came before, by a penalty."""
        penalties = self.frequency_penalty, self.presence_penalty
        return self.repetition_penalty != 1.0 or penalties != (0.0, 0.0)

    @property
    def is_greedy(self) -> bool:
        """Whether decoding is greedy (temperature 0)."""
        return self.temperature == 0.0

    @cached_property
    def is_extreme(self) -> bool:
        """Whether float32 could overflow or round too much: sampling then takes float64."""
        factors = self.repetition_penalty, self.temperature or 1.0
        added = [self.frequency_penalty, self.presence_penalty]
        added += [number for _, number in self.logit_bias]
        is_small = all(abs(number) <= 1e3 for number in added)
        return not (is_small and all(0.1 <= factor <= 100.0 for factor in factors))

    @cached_property
    def bias_arrays(self) -> tuple[Int64[np.ndarray, " bias"], Float64[np.ndarray, " bias"]]:
        """The ids of `logit_bias`, and what is added to their logits."""
        import numpy as np

        ids, numbers = zip(*self.logit_bias, strict=True) if self.logit_bias else ((), ())
        return np.array(ids, np.int64), np.array(numbers, np.float64)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Limits of an engine."""

    max_running: int = 64
    """maximum batch size: sequences that are decoded together"""
    chunk_tokens: int = 128
    """tokens per step: a long prompt is read in chunks, so that it does not stop the others"""
    cache_bytes: int = 512 * 2**20
    """memory of the KV cache, in bytes"""
    kernel: Kernel = "auto"
    """readable (the model itself), compiled (for this processor), or auto (where possible)"""
    weights: WeightDtype = "float32"
    """dtype of the weights: float32, or int8, which takes a quarter of the memory and is faster"""
    threads: int | None = None
    """threads of the compiled kernels; None: as many as are fastest, found by timing the work"""

    def __post_init__(self) -> None:
        require_at_least(1, max_running=self.max_running, chunk_tokens=self.chunk_tokens)
        require_at_least(1, cache_bytes=self.cache_bytes, threads=self.threads)
        require_choice(get_args(Kernel), kernel=self.kernel)
        require_choice(get_args(WeightDtype), weights=self.weights)
