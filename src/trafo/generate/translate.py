"""Sentences -> translations, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trafo.checkpoint.bundle import Bundle
from trafo.checkpoint.locate import RUN_CONFIG
from trafo.config import with_values
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.data.pairs import PADDING_CHARACTER
from trafo.errors import InputError, require_lists
from trafo.generate.beam import beam_search_all
from trafo.generate.beam_config import BeamConfig
from trafo.models import SequenceModel
from trafo.models.base import evaluating


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence."""

    text: str
    logprob: float
    score: float
    ids: tuple[int, ...]


def translate(
    model: SequenceModel,
    tokenizer: PairTokenizer,
    sentences: Sequence[str],
    config: BeamConfig | None = None,
    *,
    advance: Callable[[int], object] | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[list[Translation]]:
    """The `n_best` translations of each sentence, best first; that of an empty one is empty.

    `advance` is called with the number of sentences done since the last call. `check` is called
    before each step of the search, which ends with the error that it raises.
    """
    config = config or BeamConfig()
    require_lists(sentences=sentences)
    clean = [sentence.replace(PADDING_CHARACTER, "").strip() for sentence in sentences]
    places = [place for place, sentence in enumerate(clean) if sentence]
    sources = source_ids(model, tokenizer, clean, places)
    with evaluating(model):
        found = beam_search_all(model, sources, tokenizer.end, config, advance=advance, check=check)
    results = [[Translation("", 0.0, 0.0, ())] for _ in sentences]
    for place, hypotheses in zip(places, found, strict=True):
        results[place] = [
            Translation(tokenizer.decode_target(each.ids), each.logprob, each.score, each.ids)
            for each in hypotheses
        ]
    return results


def search_settings(bundle: Bundle, **given: Any) -> BeamConfig:
    """The beam search settings of a run, and over them those that are given and not None."""
    where = str(bundle.source.parent.parent / RUN_CONFIG)
    run = with_values(BeamConfig(), bundle.decoding, where)
    return replace(run, **{name: value for name, value in given.items() if value is not None})


def source_ids(
    model: SequenceModel, tokenizer: PairTokenizer, sentences: Sequence[str], places: Sequence[int]
) -> list[list[int]]:
    """The ids of the sentences at `places`; an error names the number of one that is too long."""
    encoded = tokenizer.encode_source([sentences[place] for place in places])
    longest = model.config.context_length
    for row, length in enumerate(encoded.lengths.tolist()):
        if longest is not None and length > longest:
            raise InputError(
                f"has {length:,} tokens, the model takes {longest:,}",
                where=f"sentence {places[row] + 1:,}",
                hint="split it into shorter ones",
            )
    return [encoded[row].tolist() for row in range(len(places))]
