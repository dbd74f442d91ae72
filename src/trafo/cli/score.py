"""`trafo score`: BLEU and chrF of a translation, from text files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from trafo.cli.arguments import OptionalPath
from trafo.errors import InputError, require, require_at_least
from trafo.evaluate.bleu import Bleu, Tokenization
from trafo.evaluate.chrf import Chrf
from trafo.evaluate.corpus import RESAMPLES, Metric
from trafo.runtime.console import plain_table, show, show_json
from trafo.runtime.progress import progress

if TYPE_CHECKING:
    from trafo.evaluate.corpus import Comparison

Hypothesis = Annotated[Positional[Path], arg(metavar="HYP")]
References = Annotated[
    Positional[tuple[Path, ...]], arg(metavar="REF ...", help_behavior_hint="(required)")
]


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
    compare: OptionalPath = None
    """another system's translation: test the difference by paired bootstrap resampling"""
    resamples: int = RESAMPLES
    """bootstrap samples for --compare"""
    json: bool = False
    """print JSON instead of a table"""

    def __post_init__(self) -> None:
        require(bool(self.references), "no reference translation", "write trafo score HYP REF")
        require_at_least(1, **{"--resamples": self.resamples})


def run(options: Options) -> None:
    """Read, score, show."""
    from trafo.data.pairs import read_lines
    from trafo.evaluate.corpus import corpus_score

    hypotheses = read_lines(options.hypothesis)
    references = [_aligned(path, options.hypothesis, hypotheses) for path in options.references]
    metrics: list[Metric] = [Bleu(options.lowercase, options.tokenize), Chrf(options.lowercase)]
    if options.compare is None:
        compared = {}
        scores = {m.name: corpus_score(m, hypotheses, references) for m in metrics}
    else:
        other = _aligned(options.compare, options.hypothesis, hypotheses)
        compared = _compare(metrics, hypotheses, other, references, options.resamples)
        scores = {name: found.scores[0] for name, found in compared.items()}
    signatures = {m.name: m.signature(len(references)) for m in metrics}
    if options.json:
        _show_json(scores, signatures, compared, len(hypotheses))
    else:
        _show_tables(scores, signatures, compared)


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


def _compare(
    metrics: list[Metric],
    ours: list[str],
    theirs: list[str],
    references: list[list[str]],
    resamples: int,
) -> dict[str, Comparison]:
    from trafo.evaluate.corpus import paired_bootstrap

    found = {}
    with progress("resampling", total=len(metrics), unit="scores") as bar:
        for metric in metrics:
            found[metric.name] = paired_bootstrap(metric, ours, theirs, references, resamples)
            bar.advance()
    return found


def _show_json(
    scores: dict[str, float],
    signatures: dict[str, str],
    compared: dict[str, Comparison],
    sentences: int,
) -> None:
    facts: dict[str, Any] = {
        "bleu": scores[Bleu.name],
        "chrf": scores[Chrf.name],
        "signature": signatures[Bleu.name],
        "chrf_signature": signatures[Chrf.name],
        "sentences": sentences,
    }
    if compared:
        bleu, chrf = compared[Bleu.name], compared[Chrf.name]
        facts["compared"] = {
            "bleu": bleu.scores[1],
            "chrf": chrf.scores[1],
            "bleu_p_value": bleu.p_value,
            "chrf_p_value": chrf.p_value,
        }
    show_json(facts)


def _show_tables(
    scores: dict[str, float], signatures: dict[str, str], compared: dict[str, Comparison]
) -> None:
    if compared:
        table = plain_table("lrrrl", ["", "this", "other", "p", "resampled: mean ± 95 % interval"])
        for name, found in compared.items():
            both = zip(found.means, found.intervals, strict=True)
            spread = " and ".join(f"{mean:.2f} ± {width:.2f}" for mean, width in both)
            this, other = (f"{score:.2f}" for score in found.scores)
            table.add_row(name, this, other, f"{found.p_value:.4f}", spread)
        show(table, "")
    table = plain_table("lrl")
    for name, score in scores.items():
        table.add_row(name, f"{score:.2f}", signatures[name])
    show(table)
