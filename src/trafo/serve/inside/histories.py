"""How a token and a translation came to be: the merges of one, the beam search of the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from trafo.checkpoint.bundle import Bundle
from trafo.data.pairs import PADDING_CHARACTER
from trafo.errors import InputError
from trafo.generate.beam import beam_search_steps
from trafo.generate.beam_config import Hypothesis
from trafo.generate.translate import search_settings, source_ids
from trafo.models.base import evaluating
from trafo.tokenizer import Tokenizer


@lru_cache(maxsize=8)
def rank_merges(tokenizer: Tokenizer) -> Mapping[tuple[bytes, bytes], int]:
    """Map each pair of the merges to its rank, the first one if it is there twice."""
    return {pair: rank for rank, pair in reversed(list(enumerate(tokenizer.merges)))}


def replay_merges(token: bytes, ranks: Mapping[tuple[bytes, bytes], int]) -> list[dict[str, Any]]:
    """List the steps that make a token: each joins the pair of lowest rank, the leftmost of equals.

    Its neighbours do not matter, because no merge crosses the borders of a token. The last step has
    one part, unless the token is not made by merges.
    """
    parts = [bytes([byte]) for byte in token]
    steps: list[dict[str, Any]] = [{"parts": _texts(parts), "rank": None, "at": None}]
    while True:
        known = [(ranks[pair], at) for at, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not known:
            return steps
        rank, at = min(known)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        steps.append({"parts": _texts(parts), "rank": rank, "at": at})


def byte_text(token: bytes) -> str:
    """Write bytes for JSON: character i is byte i."""
    return token.decode("latin-1")


def _texts(parts: list[bytes]) -> list[str]:
    return [byte_text(part) for part in parts]


def beam_tree(
    bundle: Bundle, sentence: str, beam: int, check: Callable[[], None]
) -> dict[str, Any]:
    """Return source ids, translations (best first), and every hypothesis that was kept at a step.

    A node has the token that it adds, its parent's place in the list (-1: the beginning), the
    log-probability up to it, and whether it ended. `check` is called before each step.
    """
    clean = sentence.replace(PADDING_CHARACTER, "").strip()
    if not clean:
        raise InputError("the sentence is empty", hint="write at least one word")
    model, tokenizer = bundle.model, bundle.tokenizer
    source = source_ids(model, tokenizer, [clean], [0])[0]
    config = search_settings(bundle, beam=beam, n_best=beam)
    with evaluating(model):
        found, steps = beam_search_steps(model, source, tokenizer.end, config, check)
    translations = [
        {
            "ids": list(each.ids),
            "text": tokenizer.decode_target(each.ids),
            "logprob": each.logprob,
            "score": each.score,
        }
        for each in found
    ]
    nodes = _nodes(steps, tokenizer.end)
    return {"source": source, "translations": translations, "nodes": nodes, "end": tokenizer.end}


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
