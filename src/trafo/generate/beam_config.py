"""Beam search settings, and length normalization of scores. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from trafo.errors import require, require_at_least, require_choice

Normalization = Literal["wu", "average", "none"]
MAX_LENGTH_PENALTY = 20.0
"""so that a length to this power is a finite number"""
_MAX_RATIO = 1000.0


class Hypothesis(NamedTuple):
    """A translation, or the beginning of one."""

    ids: tuple[int, ...]
    """including the end token, if there is one"""
    logprob: float
    """total log-probability of the ids"""
    score: float
    """log-probability normalized by length; ranks hypotheses at the end"""


@dataclass(frozen=True, kw_only=True)
class BeamConfig:
    """Beam search settings; those of a run hold wherever it translates, unless others are given."""

    beam: int = 5
    """beam size: hypotheses kept at each step; 1 is greedy search"""
    length_penalty: float = 1.0
    """length penalty: exponent of the length normalization; higher favours longer translations"""
    normalization: Normalization = "average"
    """length normalization: divide log-probabilities by length (average), by (5 + length) / 6 as in
    Wu et al. (2016), or not at all (none)"""
    n_best: int = 1
    """n-best list: translations per sentence"""
    max_ratio: float = 2.0
    """maximum length of a translation: max_ratio times the source's tokens, plus max_extra"""
    max_extra: int = 10
    """tokens added to the maximum length, see max_ratio"""

    def __post_init__(self) -> None:
        require_at_least(1, beam=self.beam, n_best=self.n_best)
        for name, most in (("length_penalty", MAX_LENGTH_PENALTY), ("max_ratio", _MAX_RATIO)):
            value = getattr(self, name)
            require(0 <= value <= most, f"{name} is {value}", f"it must be from 0 to {most:,g}")
        require_at_least(1, max_extra=self.max_extra)
        require_choice(("wu", "average", "none"), normalization=self.normalization)
        is_enough = self.n_best <= self.beam
        require(is_enough, f"n_best {self.n_best} with a beam of {self.beam}", "raise beam")

    def score(self, logprob: float, length: int) -> float:
        """Score of a hypothesis of `length` tokens, end token included."""
        if self.normalization == "none":
            return logprob
        size: float = length if self.normalization == "average" else (5 + length) / 6
        normalized: float = logprob / size**self.length_penalty
        return normalized

    def most_tokens(self, source_length: int, context_length: int | None = None) -> int:
        """Maximum length of a translation, end token included."""
        most = int(self.max_ratio * source_length) + self.max_extra
        return most if context_length is None else min(most, context_length)
