"""BLEU (Papineni et al., 2002) from scratch: modified n-gram precision with a brevity penalty.

BLEU = BP * exp(mean of log p_n over n = 1..4)
p_n  = clipped matches / n-grams of the hypotheses; an n-gram matches at most as often as it
       occurs in a single reference
BP   = 1 if h >= r, else exp(1 - r / h): brevity penalty; h is the length of the hypotheses, r that
       of the references, of each sentence the one closest in length

Here to be read. `trafo.evaluate.scores` reports sacreBLEU's numbers, and tests check that they are
equal, with its default smoothing: the k-th order without any match counts 1 / 2^k matches.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

ORDERS = range(1, 5)

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_RULES = [
    (re.compile(r"([ -&(-+/:-@\[-`{-~])"), r" \1 "),  # symbols of ASCII, but not ' , - .
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])-"), r"\1 - "),
]


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Score a corpus, 0 to 100, against one or more whole translations of it.

    Counts are summed over all sentences before they are divided.
    """
    our_length = their_length = 0
    matches, totals = Counter[int](), Counter[int]()
    for hypothesis, *others in zip(hypotheses, *references, strict=True):
        ours, theirs = split_13a(hypothesis), [split_13a(other) for other in others]
        our_length += len(ours)
        their_length += min(map(len, theirs), key=lambda n: (abs(n - len(ours)), n))
        for n in ORDERS:
            most = Counter[tuple[str, ...]]()
            for words in theirs:
                most |= count_ngrams(words, n)
            counts = count_ngrams(ours, n)
            matches[n] += (counts & most).total()
            totals[n] += counts.total()
    if not any(matches.values()) or not all(totals.values()):
        return 0.0
    log_precision, smoothing = 0.0, 1.0
    for n in ORDERS:
        smoothing *= 1 if matches[n] else 2
        log_precision += math.log((matches[n] or 1 / smoothing) / totals[n]) / len(ORDERS)
    return 100 * math.exp(min(0.0, 1 - their_length / our_length) + log_precision)


def count_ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """Count how often each run of n words occurs."""
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def split_13a(text: str) -> list[str]:
    """Split as NIST's mteval-v13a does: punctuation apart from words, numbers in one piece."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.split()
