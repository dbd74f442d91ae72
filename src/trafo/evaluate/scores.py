"""BLEU and chrF of translations as sacreBLEU (Post, 2018) computes them, with its signatures.

chrF (Popović, 2015) is an F-score of character n-grams, so words that are partly right count. The
difference of two systems is tested by paired bootstrap resampling (Koehn, 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trafo.errors import InputError, require_lists

if TYPE_CHECKING:
    from sacrebleu.significance import Result

Tokenization = Literal["13a", "none"]
References = Sequence[Sequence[str]]
"""one or more whole translations, line by line"""

BLEU, CHRF = "BLEU", "chrF2"


@dataclass(frozen=True)
class Score:
    """A score of a corpus, 0 to 100, and how it was computed."""

    value: float
    signature: str


def score_bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    tokenize: Tokenization = "13a",
) -> Score:
    """Compute corpus BLEU with n-grams up to 4."""
    return _score(_metrics(lowercase, tokenize)[BLEU], hypotheses, references)


def score_chrf(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False
) -> Score:
    """Compute corpus chrF2, with character n-grams up to 6."""
    return _score(_metrics(lowercase)[CHRF], hypotheses, references)


def compare_systems(
    ours: Sequence[str],
    theirs: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    tokenize: Tokenization = "13a",
    resamples: int = 1000,
) -> dict[str, tuple[Result, Result]]:
    """Score both systems by each metric on the same resampled corpora, with a p-value of ours."""
    from sacrebleu.significance import PairedTest

    for system in (ours, theirs):
        _check_lines(system, references)
    systems = [("theirs", theirs), ("ours", ours)]
    metrics = _metrics(lowercase, tokenize)
    _, found = PairedTest(systems, metrics, references, test_type="bs", n_samples=resamples)()
    return {name: (found[name][1], found[name][0]) for name in metrics}  # type: ignore[misc]


def _metrics(lowercase: bool, tokenize: Tokenization = "13a") -> dict[str, Any]:
    import sacrebleu

    # Forced: text that looks tokenized is scored without a warning.
    return {
        BLEU: sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True),
        CHRF: sacrebleu.CHRF(lowercase=lowercase),
    }


def _score(metric: Any, hypotheses: Sequence[str], references: References) -> Score:
    _check_lines(hypotheses, references)
    value = metric.corpus_score(hypotheses, references).score
    return Score(value, metric.get_signature().format())


def _check_lines(hypotheses: Sequence[str], references: References) -> None:
    if not hypotheses or not references:
        raise InputError("nothing to score", hint="give hypotheses and at least one reference")
    require_lists(hypotheses=hypotheses, references=references)
    for reference in references:
        require_lists(reference=reference)
        if len(reference) != len(hypotheses):
            what = f"{len(hypotheses):,} hypotheses, but {len(reference):,} reference sentences"
            raise InputError(what, hint="both need a line for each sentence")
