"""chrF (Popović, 2015): character n-gram F-score; words that are partly right count.

F = (1 + b^2) P R / (b^2 P + R) with b = 2: recall weighs more. P and R are the mean precision and
recall over n = 1..6, of the orders that both sides have. White space does not count. Of several
references, the one with the best F of a sentence counts. Equal to sacreBLEU's chrF2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import trafo
from trafo.evaluate.corpus import ngrams

ORDERS = range(1, 7)
_FACTOR = 2**2


@dataclass(frozen=True)
class Chrf:
    """Corpus chrF2."""

    lowercase: bool = False
    name = "chrF2"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> list[int]:
        """For each order: n-grams of the hypothesis, of the best reference, and matches."""
        ours = self._characters(hypothesis)
        others = [_counts(ours, self._characters(reference)) for reference in references]
        return max(others, key=self.score)

    def score(self, statistics: Sequence[int]) -> float:
        """chrF2, 0 to 100, from the statistics summed over all sentences."""
        precision = recall = 0.0
        orders = 0
        for start in range(0, len(statistics), 3):
            ours, theirs, matches = statistics[start : start + 3]
            if ours and theirs:
                precision += matches / ours
                recall += matches / theirs
                orders += 1
        if not precision:
            return 0.0
        precision, recall = precision / orders, recall / orders
        return 100 * ((1 + _FACTOR) * precision * recall / (_FACTOR * precision + recall))

    def signature(self, num_references: int) -> str:
        """Signature in sacreBLEU's format, with our name as the version."""
        case = "lc" if self.lowercase else "mixed"
        return (
            f"nrefs:{num_references}|case:{case}|eff:yes|nc:{ORDERS[-1]}|nw:0|space:no"
            f"|version:trafo-{trafo.__version__}"
        )

    def _characters(self, sentence: str) -> str:
        return "".join((sentence.lower() if self.lowercase else sentence).split())


def _counts(hypothesis: str, reference: str) -> list[int]:
    counts = []
    for n in ORDERS:
        ours, theirs = ngrams(hypothesis, n), ngrams(reference, n)
        # An order that the reference is too short for says nothing about the hypothesis.
        counts += [ours.total() if theirs else 0, theirs.total(), (ours & theirs).total()]
    return counts
