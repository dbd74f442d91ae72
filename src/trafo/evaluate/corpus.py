"""Corpus scores from sentence statistics, and significance by paired bootstrap resampling.

A metric computes counts for each sentence; a corpus is scored from their sums, not from the mean of
sentence scores. So the score of a resampled corpus costs only a sum (Koehn, 2004).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError, require_lists

Item = TypeVar("Item", bound=Hashable)

RESAMPLES = 1000
_SEED = 12345  # sacreBLEU's, so that p-values are equal


class Metric(Protocol):
    """BLEU or chrF."""

    @property
    def name(self) -> str:
        """As papers write it."""

    def statistics(self, hypothesis: str, references: Sequence[str]) -> list[int]:
        """The counts of one sentence."""

    def score(self, statistics: Sequence[int]) -> float:
        """0 to 100, from the summed counts of all sentences."""

    def signature(self, num_references: int) -> str:
        """How the score was computed, in sacreBLEU's format."""


@dataclass(frozen=True)
class Comparison:
    """Paired bootstrap resampling of two systems on the same sentences."""

    scores: tuple[float, float]
    means: tuple[float, float]
    """over the resampled corpora"""
    intervals: tuple[float, float]
    """half the width of the 95 % confidence interval around each mean"""
    p_value: float
    """how likely a difference this large is by chance"""


def ngrams(items: Sequence[Item], n: int) -> Counter[tuple[Item, ...]]:
    """How often each run of n items occurs."""
    return Counter(zip(*(items[start:] for start in range(n)), strict=False))


def corpus_score(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
    """Corpus score; `references` holds one or more whole translations, line by line."""
    statistics = corpus_statistics(metric, hypotheses, references)
    return metric.score(statistics.sum(axis=0).tolist())


def corpus_statistics(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """A row of counts for each sentence."""
    if not hypotheses or not references:
        raise InputError("nothing to score", hint="give hypotheses and at least one reference")
    require_lists(hypotheses=hypotheses, references=references)
    for reference in references:
        require_lists(reference=reference)
        if len(reference) != len(hypotheses):
            what = f"{len(hypotheses):,} hypotheses, but {len(reference):,} reference sentences"
            raise InputError(what, hint="both need a line for each sentence")
    rows = zip(hypotheses, zip(*references, strict=True), strict=True)
    return np.array([metric.statistics(hypothesis, each) for hypothesis, each in rows], np.int64)


def paired_bootstrap(
    metric: Metric,
    ours: Sequence[str],
    theirs: Sequence[str],
    references: Sequence[Sequence[str]],
    resamples: int = RESAMPLES,
) -> Comparison:
    """Score both systems on the same resampled corpora, sentences drawn with replacement."""
    both = [corpus_statistics(metric, system, references) for system in (ours, theirs)]
    first, second = (metric.score(statistics.sum(axis=0).tolist()) for statistics in both)
    sampled = np.empty((2, resamples))
    rng = np.random.default_rng(_SEED)
    for sample in range(resamples):
        drawn = rng.integers(len(ours), size=len(ours))
        times = np.bincount(drawn, minlength=len(ours))
        sampled[:, sample] = [metric.score((times @ statistics).tolist()) for statistics in both]
    # Under the hypothesis of no difference, differences spread around 0 as ours do around their
    # mean; one is added so that no finite number of samples claims certainty.
    differences = np.abs(sampled[0] - sampled[1])
    larger = int(np.sum(differences - differences.mean() > abs(first - second)))
    return Comparison(
        scores=(first, second),
        means=(float(sampled[0].mean()), float(sampled[1].mean())),
        intervals=(_half_width(sampled[0]), _half_width(sampled[1])),
        p_value=(larger + 1) / (resamples + 1),
    )


def _half_width(scores: NDArray[np.float64]) -> float:
    """Half the width of the 95 % interval: 2.5 % of the scores are cut off at each end."""
    cut = len(scores) // 40
    in_order = np.sort(scores)
    return float(in_order[len(scores) - cut - 1] - in_order[cut]) / 2
