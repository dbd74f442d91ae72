"""Tokenizer and text -> `Report`, in one pass and constant memory.

Each chunk of the text is encoded. The lengths of the tokens say where in the text each one lies,
and the characters there say which script it is spent on. The command line prints the report.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getmembers
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.runtime.machine import available_cores
from trafo.runtime.progress import progress
from trafo.runtime.threads import map_in_order
from trafo.tokenizer.chunks import Chunk, Chunker
from trafo.tokenizer.files import Errors
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.inputs import Inputs, Paths, open_inputs
from trafo.tokenizer.kernels.arrays import Ids
from trafo.tokenizer.report.odd_tokens import (
    find_unreachable,
    format_token,
    is_boilerplate,
    is_mojibake,
)
from trafo.tokenizer.report.scripts import KINDS, SPACES, SPECIAL, Kinds, classify_bytes
from trafo.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ScriptCounts:
    """The bytes of some text and the tokens that they become."""

    num_bytes: int = 0
    num_tokens: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: n + getattr(other, name) for name, n in vars(self).items()})

    @property
    def bytes_per_token(self) -> float:
        """How well the text is compressed, comparable between any two tokenizers."""
        return _divide(self.num_bytes, self.num_tokens)


@dataclass(frozen=True, kw_only=True)
class TextCounts(ScriptCounts):
    """A text, or some of it, counted in four ways. Words are what white space separates."""

    num_characters: int = 0
    num_words: int = 0

    @property
    def characters_per_token(self) -> float:
        """As bytes per token, but fair to scripts whose characters take several bytes."""
        return _divide(self.num_characters, self.num_tokens)

    @property
    def tokens_per_word(self) -> float:
        """Fertility: tokens per word, the white space around it included."""
        return _divide(self.num_tokens, self.num_words)


@dataclass(frozen=True)
class ListedToken:
    """A token, how often the text holds it, and why it is listed, if that needs saying."""

    id: int
    content: bytes
    count: int
    why: str = ""

    def __str__(self) -> str:
        return format_token(self.content)

    def to_dict(self) -> dict[str, Any]:
        """Return the token as people read it."""
        why = {"why": self.why} if self.why else {}
        size = len(self.content)
        return {"id": self.id, "token": str(self), "num_bytes": size, "count": self.count, **why}


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a tokenizer does to a text. Tokens listed as odd come in order of their ids."""

    tokenizer: str
    hash: str
    pattern: str
    num_tokens: int
    num_special_tokens: int
    files: dict[str, TextCounts]
    scripts: dict[str, ScriptCounts]
    seconds: float  # of encoding alone, on one core
    longest: list[ListedToken]
    most_frequent: list[ListedToken]
    never_used: list[ListedToken]
    unreachable: list[ListedToken]
    mojibake: list[ListedToken]
    boilerplate: list[ListedToken]

    @property
    def total(self) -> TextCounts:
        """The counts of all files together."""
        return sum(self.files.values(), TextCounts())

    @property
    def bytes_per_second(self) -> float:
        """How fast one core encodes this text."""
        return _divide(self.total.num_bytes, self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON, with the ratios filled in and tokens as people read them."""
        return {name: _to_plain(value) for name, value in _list_figures(self)}


def measure_tokenizer(
    tokenizer: Tokenizer,
    inputs: Paths | Inputs,
    *,
    name: str = "tokenizer",
    field: str = "text",
    errors: Errors = "strict",
    top: int = 10,
    chunk_size: int = 1 << 20,
) -> Report:
    """Encode files, folders or globs and report on it.

    `name` is what the report calls the tokenizer. `top` is how many of the longest and of the most
    frequent tokens it lists. `chunk_size` decides how much memory it takes, and nothing else.
    """
    inputs = open_inputs(inputs, field, errors)
    meter = _Meter(tokenizer)
    chunker = Chunker(inputs, tokenizer.pattern, meter.finder, chunk_size)
    files = {str(file.path): TextCounts() for file in inputs.files}
    with progress(f"measuring {name}", total=inputs.size, unit="MB", scale=1e6) as bar:
        for chunk in map_in_order(chunker.read, chunker.plan(), available_cores()):
            files[str(chunk.plan.file.path)] += meter.add(chunk)
            bar.advance(chunk.plan.disk_bytes)
    if not meter.counts.any():
        raise InputError("the text is empty", where=", ".join(files))
    return Report(
        tokenizer=name,
        hash=tokenizer.hash,
        pattern=tokenizer.pattern,
        num_tokens=len(tokenizer.vocab),
        num_special_tokens=len(tokenizer.special_tokens),
        files=files,
        scripts=meter.scripts(),
        seconds=meter.seconds,
        **_list_tokens(tokenizer.spec, meter.counts, top),
    )


class _Meter:
    """Adds up what the chunks of a text become. They come in order."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.finder = tokenizer.special_finder("allow")
        self._tokenizer = tokenizer
        self._token_bytes = np.zeros(tokenizer.vocab_size, np.int64)
        for token_id, token in tokenizer.vocab.items():
            self._token_bytes[token_id] = len(token)
        self._bytes_of_kind = np.zeros(len(KINDS), np.int64)
        self._tokens_of_kind = np.zeros(len(KINDS), np.int64)
        self._in_word = False
        self.counts = np.zeros(tokenizer.vocab_size, np.int64)
        self.seconds = 0.0

    def scripts(self) -> dict[str, ScriptCounts]:
        """Return the counts of the kinds that occur, the largest first."""
        return {
            KINDS[kind]: ScriptCounts(
                num_bytes=int(self._bytes_of_kind[kind]), num_tokens=int(self._tokens_of_kind[kind])
            )
            for kind in np.argsort(-self._bytes_of_kind, kind="stable")
            if self._tokens_of_kind[kind]
        }

    def add(self, chunk: Chunk) -> TextCounts:
        """Count a chunk."""
        if not len(chunk.data):
            return TextCounts()
        with self._tokenizer.encoder() as encoder:
            start = perf_counter()
            ids = encoder.encode_chunk(chunk.data, chunk.specials)
            self.seconds += perf_counter() - start
            ids = ids.copy()
        kinds = classify_bytes(chunk.data)
        for start_byte, stop_byte, special in chunk.specials.tolist():
            if special != self.finder.document_end:
                kinds[start_byte:stop_byte] = SPECIAL
        self._count_tokens(ids, kinds)
        return TextCounts(
            num_bytes=len(chunk.data),
            num_characters=int(np.count_nonzero(chunk.data & 0xC0 != 0x80)),
            num_words=self._count_words(kinds, chunk),
            num_tokens=len(ids),
        )

    def _count_tokens(self, ids: Ids, kinds: Kinds) -> None:
        lengths = self._token_bytes[ids]
        starts = np.cumsum(lengths) - lengths
        kind_of_token = np.maximum.reduceat(kinds, starts)
        self.counts += np.bincount(ids, minlength=len(self.counts))
        self._tokens_of_kind += np.bincount(kind_of_token, minlength=len(KINDS))
        self._bytes_of_kind += np.bincount(kind_of_token, lengths, len(KINDS)).astype(np.int64)

    def _count_words(self, kinds: Kinds, chunk: Chunk) -> int:
        """Count the words that begin here. The first may continue one of the chunk before."""
        inside = (kinds != SPACES) & (kinds != SPECIAL)
        inside_before = np.concatenate([[self._in_word], inside])
        inside_before[chunk.specials[:, 1]] = False
        self._in_word = bool(inside_before[-1])
        return int(np.count_nonzero(inside & ~inside_before[:-1]))


def _list_tokens(
    spec: TokenizerSpec, counts: NDArray[np.int64], top: int
) -> dict[str, list[ListedToken]]:
    """List the tokens worth a look, by why they are. Special tokens are listed only if frequent."""
    special_ids = set(spec.special_tokens.values())
    ordinary = {i: token for i, token in sorted(spec.vocab.items()) if i not in special_ids}
    by_count = np.argsort(-counts, kind="stable").tolist()
    reasons = find_unreachable(spec)
    ids = {
        "longest": sorted(ordinary, key=lambda i: -len(ordinary[i]))[:top],
        "most_frequent": [i for i in by_count[:top] if counts[i]],
        "never_used": [i for i in ordinary if not counts[i]],
        "unreachable": list(reasons),
        "mojibake": [i for i, token in ordinary.items() if is_mojibake(token)],
        "boilerplate": [i for i, token in ordinary.items() if is_boilerplate(token)],
    }
    return {
        why: [
            ListedToken(
                i, spec.vocab[i], int(counts[i]), reasons[i] if why == "unreachable" else ""
            )
            for i in listed
        ]
        for why, listed in ids.items()
    }


def _divide(amount: float, unit: float) -> float:
    return amount / unit if unit else 0.0


def _list_figures(record: Report | ScriptCounts) -> list[tuple[str, Any]]:
    """List the fields of a record and what its properties derive from them."""
    derived = [name for name, _ in getmembers(type(record), lambda one: isinstance(one, property))]
    return [(name, getattr(record, name)) for name in (*vars(record), *derived)]


def _to_plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: dict(_list_figures(counts)) for name, counts in value.items()}
        case list():
            return [token.to_dict() for token in value]
        case ScriptCounts():
            return dict(_list_figures(value))
    return value
