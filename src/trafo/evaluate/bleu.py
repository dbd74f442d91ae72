"""BLEU (Papineni et al., 2002): modified n-gram precision with a brevity penalty.

BLEU = BP * exp(mean of log p_n over n = 1..4)
p_n  = clipped matches / n-grams of the hypotheses; an n-gram matches at most as often as it
       occurs in a single reference
BP   = 1 if h >= r, else exp(1 - r / h): brevity penalty; h is the length of the hypotheses, r that
       of the references, of each sentence the one closest in length

Equal to sacreBLEU (Post, 2018) with its default smoothing: the k-th order without any match counts
1 / 2^k matches.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import trafo
from trafo.evaluate.corpus import ngrams

Tokenization = Literal["13a", "none"]

ORDERS = range(1, 5)

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_SYMBOLS = re.compile(r"([ -&(-+/:-@\[-`{-~])")  # ASCII, but not ' , - .
_POINT_AFTER_OTHER = re.compile(r"([^0-9])([.,])")
_POINT_BEFORE_OTHER = re.compile(r"([.,])([^0-9])")
_DASH_AFTER_DIGIT = re.compile(r"([0-9])-")


@dataclass(frozen=True)
class Bleu:
    """Corpus BLEU with n-grams up to 4."""

    lowercase: bool = False
    tokenize: Tokenization = "13a"
    name = "BLEU"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> list[int]:
        """Lengths of hypothesis and reference, then n-gram matches and totals of each order."""
        words = self._words(hypothesis)
        others = [self._words(reference) for reference in references]
        closest = min(map(len, others), key=lambda length: (abs(length - len(words)), length))
        matches, totals = [], []
        for n in ORDERS:
            ours = ngrams(words, n)
            most: Counter[tuple[str, ...]] = Counter()
            for other in others:
                most |= ngrams(other, n)
            matches.append((ours & most).total())
            totals.append(ours.total())
        return [len(words), closest, *matches, *totals]

    def score(self, statistics: Sequence[int]) -> float:
        """BLEU, 0 to 100, from the statistics summed over all sentences."""
        ours, theirs, *counts = statistics
        matches, totals = counts[: len(ORDERS)], counts[len(ORDERS) :]
        if not any(matches) or not all(totals):
            return 0.0
        precisions, smoothed = [], 1.0
        for matching, total in zip(matches, totals, strict=True):
            if not matching:
                smoothed *= 2
            precisions.append(100 * matching / total if matching else 100 / (smoothed * total))
        brevity = 1.0 if ours >= theirs else math.exp(1 - theirs / ours)
        return brevity * math.exp(sum(map(math.log, precisions)) / len(precisions))

    def signature(self, num_references: int) -> str:
        """Signature in sacreBLEU's format, with our name as the version."""
        case = "lc" if self.lowercase else "mixed"
        return (
            f"nrefs:{num_references}|case:{case}|eff:no|tok:{self.tokenize}|smooth:exp"
            f"|version:trafo-{trafo.__version__}"
        )

    def _words(self, sentence: str) -> list[str]:
        text = (sentence.lower() if self.lowercase else sentence).rstrip()
        return words_13a(text) if self.tokenize == "13a" else text.split()


def words_13a(text: str) -> list[str]:
    """Split as NIST's mteval-v13a does: punctuation apart from words, numbers in one piece."""
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = _SYMBOLS.sub(r" \1 ", f" {text} ")
    text = _POINT_AFTER_OTHER.sub(r"\1 \2 ", text)
    text = _POINT_BEFORE_OTHER.sub(r" \1 \2", text)
    return _DASH_AFTER_DIGIT.sub(r"\1 - ", text).split()
