"""A sentence -> its translations, and the beam search that found them, as a tree for JSON."""

from __future__ import annotations

from typing import Any

from trafo.checkpoint.bundle import TranslatorBundle
from trafo.data.pairs import PADDING_CHARACTER
from trafo.errors import InputError
from trafo.generate.beam import beam_search_steps
from trafo.generate.beam_config import Hypothesis
from trafo.generate.translate import search_settings, source_ids
from trafo.models.base import evaluating


def beam_tree(bundle: TranslatorBundle, sentence: str, beam: int) -> dict[str, Any]:
    """Source ids, translations (best first), and every hypothesis that was kept at a step.

    A node has the token that it adds, its parent's place in the list (-1: the beginning), the
    log-probability up to it, and whether it ended.
    """
    clean = sentence.replace(PADDING_CHARACTER, "").strip()
    if not clean:
        raise InputError("the sentence is empty", hint="write at least one word")
    model, tokenizer = bundle.model, bundle.tokenizer
    source = source_ids(model, tokenizer, [clean], [0])[0]
    config = search_settings(bundle, beam=beam, n_best=beam)
    with evaluating(model):
        found, steps = beam_search_steps(model, source, tokenizer.end, config)
    return {
        "source": source,
        "translations": [
            {
                "ids": list(each.ids),
                "text": tokenizer.decode_target(each.ids),
                "logprob": each.logprob,
                "score": each.score,
            }
            for each in found
        ],
        "nodes": _nodes(steps, tokenizer.end),
        "end": tokenizer.end,
    }


def _nodes(steps: list[list[Hypothesis]], end: int) -> list[dict[str, Any]]:
    places: dict[tuple[int, ...], int] = {(): -1}
    nodes: list[dict[str, Any]] = []
    for kept in steps:
        for ids, logprob, score in kept:
            places[ids] = len(nodes)
            nodes.append(
                {
                    "id": ids[-1],
                    "parent": places[ids[:-1]],
                    "logprob": logprob,
                    "score": score,
                    "ended": ids[-1] == end,
                }
            )
    return nodes
