"""Tokenizer and text -> `Report`, in one pass and constant memory.

Each chunk of the text is encoded. The lengths of the tokens say where in the text each one lies,
and the characters there say which script it is spent on.
"""

from __future__ import annotations

from time import perf_counter

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
from trafo.tokenizer.report.facts import Report, Share, Token, Totals
from trafo.tokenizer.report.oddities import is_boilerplate, is_mojibake
from trafo.tokenizer.report.scripts import KINDS, SPACES, SPECIAL, Kinds, kinds_of_bytes
from trafo.tokenizer.report.unreachable import unreachable_tokens
from trafo.tokenizer.tokenizer import Tokenizer


def measure(
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

    `name` is what the report calls the tokenizer; `top` is how many of the longest and of the most
    frequent tokens it lists. `chunk_size` decides how much memory it takes, and nothing else.
    """
    inputs = open_inputs(inputs, field, errors)
    meter = Meter(tokenizer)
    chunker = Chunker(inputs, tokenizer.pattern, meter.finder, chunk_size)
    files = {str(file.path): Totals() for file in inputs.files}
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
        **_listed_tokens(tokenizer.spec, meter.counts, top),
    )


def _listed_tokens(
    spec: TokenizerSpec, counts: NDArray[np.int64], top: int
) -> dict[str, list[Token]]:
    """The tokens worth a look, by why they are. Special tokens are listed only if frequent."""
    special_ids = set(spec.special_tokens.values())
    ordinary = {i: token for i, token in sorted(spec.vocab.items()) if i not in special_ids}
    by_length = sorted(ordinary, key=lambda i: -len(ordinary[i]))
    by_count = np.argsort(-counts, kind="stable").tolist()
    reasons = unreachable_tokens(spec)
    ids = {
        "longest": by_length[:top],
        "most_frequent": [i for i in by_count[:top] if counts[i]],
        "never_used": [i for i in ordinary if not counts[i]],
        "mojibake": [i for i, token in ordinary.items() if is_mojibake(token)],
        "boilerplate": [i for i, token in ordinary.items() if is_boilerplate(token)],
    }
    listed = {
        why: [Token(i, spec.vocab[i], int(counts[i])) for i in those] for why, those in ids.items()
    }
    listed["unreachable"] = [
        Token(i, spec.vocab[i], int(counts[i]), reason) for i, reason in reasons.items()
    ]
    return listed


class Meter:
    """Adds up what the chunks of a text become."""

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

    def scripts(self) -> dict[str, Share]:
        """The kinds that occur, the largest first."""
        shares = {
            kind: Share(int(num_bytes), int(num_tokens))
            for kind, num_bytes, num_tokens in zip(
                KINDS, self._bytes_of_kind, self._tokens_of_kind, strict=True
            )
            if num_tokens
        }
        return dict(sorted(shares.items(), key=lambda item: -item[1].num_bytes))

    def add(self, chunk: Chunk) -> Totals:
        """Count a chunk; chunks come in order."""
        if not len(chunk.data):
            return Totals()
        ids = self._encode(chunk)
        kinds = kinds_of_bytes(chunk.data)
        for start, stop, special in chunk.specials.tolist():
            if special != self.finder.document_end:
                kinds[start:stop] = SPECIAL
        self._count_tokens(ids, kinds)
        return Totals(
            num_bytes=len(chunk.data),
            num_characters=int(np.count_nonzero(chunk.data & 0xC0 != 0x80)),
            num_words=self._count_words(kinds, chunk),
            num_tokens=len(ids),
        )

    def _encode(self, chunk: Chunk) -> Ids:
        with self._tokenizer.encoder() as encoder:
            start = perf_counter()
            ids = encoder.encode_chunk(chunk.data, chunk.specials)
            self.seconds += perf_counter() - start
            return ids.copy()

    def _count_tokens(self, ids: Ids, kinds: Kinds) -> None:
        lengths = self._token_bytes[ids]
        starts = np.cumsum(lengths) - lengths
        kind_of_token = np.maximum.reduceat(kinds, starts)
        self.counts += np.bincount(ids, minlength=len(self.counts))
        self._tokens_of_kind += np.bincount(kind_of_token, minlength=len(KINDS))
        self._bytes_of_kind += np.bincount(kind_of_token, lengths, len(KINDS)).astype(np.int64)

    def _count_words(self, kinds: Kinds, chunk: Chunk) -> int:
        """How many words begin here; the first may continue one of the chunk before."""
        inside = (kinds != SPACES) & (kinds != SPECIAL)
        inside_before = np.concatenate([[self._in_word], inside])
        inside_before[chunk.specials[:, 1]] = False
        self._in_word = bool(inside_before[-1])
        return int(np.count_nonzero(inside & ~inside_before[:-1]))
