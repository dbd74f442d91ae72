"""A token's history: which merges of byte-pair encoding made it from bytes, in order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from trafo.tokenizer import Tokenizer

Pair = tuple[bytes, bytes]


@lru_cache(maxsize=8)
def ranks_of(tokenizer: Tokenizer) -> Mapping[Pair, int]:
    """The rank of each pair of merges; the first, if it is there twice."""
    return {pair: rank for rank, pair in reversed(list(enumerate(tokenizer.merges)))}


def replay(token: bytes, ranks: Mapping[Pair, int]) -> list[dict[str, Any]]:
    """The steps that make a token: each joins the pair of lowest rank, the leftmost of equals.

    Its neighbours do not matter: no merge crosses the borders of a token. The last step has one
    part, unless the token is not made by merges.
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
    """Bytes for JSON: character i is byte i."""
    return token.decode("latin-1")


def _texts(parts: list[bytes]) -> list[str]:
    return [byte_text(part) for part in parts]
