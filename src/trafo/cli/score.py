"""`trafo score`: BLEU and chrF of a translation, from text files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trafo.config import Argument, Positional
from trafo.errors import InputError, require, require_at_least
from trafo.evaluate.scores import (
    BLEU,
    CHRF,
    Tokenization,
    compare_systems,
    score_bleu,
    score_chrf,
)
from trafo.runtime.console import plain_table, show, show_json

if TYPE_CHECKING:
    from rich.table import Table
    from sacrebleu.significance import Result

    from trafo.evaluate.scores import Score

Hypothesis = Annotated[Positional[Path], Argument(metavar="HYP")]
References = Annotated[Positional[tuple[Path, ...]], Argument(metavar="REF ...")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Score a translation with BLEU and chrF, as sacreBLEU does. Files may be .gz or .zst."""

    hypothesis: Hypothesis
    """the translation to score, a sentence per line"""
    references: References
    """one or more reference translations, aligned with it line by line"""
    lowercase: bool = False
    """ignore case"""
    tokenize: Tokenization = "13a"
    """tokenization for BLEU: 13a, the standard of WMT, or none if the text is tokenized"""
    compare: Path | None = None
    """another system's translation: test the difference by paired bootstrap resampling"""
    resamples: int = 1000
    """bootstrap samples for --compare"""
    json: bool = False
    """print JSON instead of a table"""

    def __post_init__(self) -> None:
        require(bool(self.references), "no reference translation", "write trafo score HYP REF")
        require_at_least(1, **{"--resamples": self.resamples})


def run(options: Options) -> None:
    """Read, score, show."""
    from trafo.data.pairs import read_lines

    hypotheses = read_lines(options.hypothesis)
    references = [_aligned(path, options.hypothesis, hypotheses) for path in options.references]
    case, tokenize = options.lowercase, options.tokenize
    bleu = score_bleu(hypotheses, references, lowercase=case, tokenize=tokenize)
    scores = {BLEU: bleu, CHRF: score_chrf(hypotheses, references, lowercase=case)}
    compared: dict[str, Any] = {}
    if options.compare is not None:
        other = _aligned(options.compare, options.hypothesis, hypotheses)
        compared = compare_systems(
            hypotheses,
            other,
            references,
            lowercase=case,
            tokenize=tokenize,
            resamples=options.resamples,
        )
    if options.json:
        return show_json(_facts(scores, compared) | {"sentences": len(hypotheses)})
    if compared:
        show(_comparison_table(compared), "")
    table = plain_table("lrl")
    for name, score in scores.items():
        table.add_row(name, f"{score.value:.2f}", score.signature)
    return show(table)


def _aligned(path: Path, with_path: Path, with_lines: list[str]) -> list[str]:
    from trafo.data.pairs import read_lines

    lines = read_lines(path)
    if len(lines) != len(with_lines):
        raise InputError(
            f"has {len(lines):,} lines, {with_path} has {len(with_lines):,}",
            where=str(path),
            hint="line i of one must translate line i of the other",
        )
    return lines


def _facts(scores: dict[str, Score], compared: dict[str, tuple[Result, Result]]) -> dict[str, Any]:
    bleu, chrf = scores[BLEU], scores[CHRF]
    facts: dict[str, Any] = {"bleu": bleu.value, "chrf": chrf.value}
    facts |= {"signature": bleu.signature, "chrf_signature": chrf.signature}
    if compared:
        (bleu_ours, bleu_theirs), (chrf_ours, chrf_theirs) = compared[BLEU], compared[CHRF]
        facts["compared"] = {
            "bleu": bleu_theirs.score,
            "chrf": chrf_theirs.score,
            "bleu_p_value": bleu_ours.p_value,
            "chrf_p_value": chrf_ours.p_value,
        }
    return facts


def _comparison_table(compared: dict[str, tuple[Result, Result]]) -> Table:
    table = plain_table("lrrrl", ["", "this", "other", "p", "resampled: mean ± 95 % interval"])
    for name, both in compared.items():
        spread = " and ".join(f"{each.mean:.2f} ± {each.ci:.2f}" for each in both)
        this, other = (f"{each.score:.2f}" for each in both)
        table.add_row(name, this, other, f"{both[0].p_value:.4f}", spread)
    return table
