"""The flags of beam search, which `trafo translate` and `trafo eval` share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from trafo.generate.beam_config import Normalization


@dataclass(frozen=True, kw_only=True)
class DecodingFlags:
    """Beam search settings that replace the run's."""

    beam: int | None = None
    """beam size: hypotheses kept at each step; 1 is greedy search. None: the run's, as for all
    settings of beam search, which `decoding` in its config has (by default a beam of 5)"""
    length_penalty: float | None = None
    """length penalty: exponent of the length normalization; higher favours longer translations"""
    normalization: Normalization | None = None
    """length normalization: divide log-probabilities by length (average), by (5 + length) / 6 as in
    Wu et al. (2016), or not at all (none)"""
    n_best: int | None = None
    """n-best list: translations per sentence"""
    max_ratio: float | None = None
    """maximum length of a translation: max_ratio times the source's tokens, plus max_extra"""
    max_extra: int | None = None
    """tokens added to the maximum length, see max_ratio"""

    @property
    def decoding(self) -> dict[str, Any]:
        """The flags by name; None where none is given."""
        return {field.name: getattr(self, field.name) for field in fields(DecodingFlags)}
