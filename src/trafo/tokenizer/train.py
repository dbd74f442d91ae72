"""Text -> a tokenizer: count the words, then merge pairs.

`train_bpe` is the plain interface: a file in, vocabulary and merges out. `train_tokenizer` says
more and can be interrupted: given a folder to work in, it goes on where it was killed, and counts
the same text only once for any number of vocabulary sizes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trafo.errors import InputError
from trafo.runtime.memory import peak_memory
from trafo.runtime.phases import PhaseTimer
from trafo.runtime.progress import progress
from trafo.tokenizer.chunks import Chunker
from trafo.tokenizer.count import merge_counts
from trafo.tokenizer.count_files import FileCounter
from trafo.tokenizer.count_store import CountStore
from trafo.tokenizer.merger import Merger
from trafo.tokenizer.parts import TokenizerParts
from trafo.tokenizer.patterns import pattern_regex
from trafo.tokenizer.records import Errors
from trafo.tokenizer.sources import BLOCK_SIZE, Paths, fingerprint, open_sources
from trafo.tokenizer.specials import SpecialTokens
from trafo.tokenizer.workers import default_workers

NUM_BYTES = 256


@dataclass(frozen=True)
class Training:
    """A trained tokenizer and what it took."""

    parts: TokenizerParts
    seconds: dict[str, float]  # per phase
    peak_memory: int
    num_bytes: int
    num_distinct_words: int
    num_words: int


def train_bpe(
    input_path: Paths, vocab_size: int, special_tokens: Sequence[str] = (), **options: Any
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Learn byte-level BPE: ids 0..255 are the bytes, then the merges, then the special tokens.

    The options are those of `train_tokenizer`.
    """
    parts = train_tokenizer(input_path, vocab_size, special_tokens, **options).parts
    return parts.vocab, parts.merges


def train_tokenizer(
    inputs: Paths,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    pattern: str = "gpt2",
    num_workers: int | None = None,
    chunk_size: int = BLOCK_SIZE,
    field: str = "text",
    errors: Errors = "strict",
    max_memory: int | None = None,
    work_dir: str | Path | None = None,
) -> Training:
    """Train on files, folders or globs; see `sources.py` for the formats.

    `field` names the text in JSON lines and Parquet. `errors="replace"` reads U+FFFD where a file
    is not UTF-8. `max_memory`, in bytes, is how much training may take beyond the program itself.
    `work_dir` keeps the counts, so that a killed run goes on and a larger vocabulary needs no
    second reading. None of the others changes the result.
    """
    special_tokens = list(dict.fromkeys(special_tokens))
    num_merges = _num_merges(vocab_size, special_tokens)
    specials = SpecialTokens(special_tokens)
    sources = open_sources(inputs, field, errors)
    timer = PhaseTimer()
    with ExitStack() as stack:
        store = None
        if work_dir is not None:
            key = _key(inputs, pattern, special_tokens, field, errors)
            store = CountStore(Path(work_dir), key)
        chunker = Chunker(pattern, specials, errors, chunk_size)
        counter = FileCounter(sources, chunker, pattern, num_workers or default_workers(), store)
        total = sum(source.size for source in sources)
        with (
            timer.phase("counting"),
            progress("counting words", total=total, unit="MB", scale=1e6) as bar,
        ):
            counter.run(bar.advance)
            parts = store.parts() if store else (each.export() for each in counter.counters)
            words = merge_counts(parts)
        with (
            timer.phase("merging"),
            progress("merging pairs", total=num_merges, unit="merges") as bar,
        ):
            merges = Merger(words, num_merges).run(bar.advance)
    return Training(
        parts=_parts(merges, special_tokens, pattern),
        seconds=timer.seconds,
        peak_memory=peak_memory(),
        num_bytes=counter.position.num_bytes,
        num_distinct_words=len(words),
        num_words=int(words.counts.sum()),
    )


def _num_merges(vocab_size: int, special_tokens: Sequence[str]) -> int:
    smallest = NUM_BYTES + len(special_tokens)
    if vocab_size < smallest:
        raise InputError(
            f"a vocabulary of {vocab_size:,} is too small",
            hint=f"{NUM_BYTES} bytes and {len(special_tokens)} special tokens need {smallest:,}",
        )
    return vocab_size - smallest


def _key(
    inputs: Paths, pattern: str, special_tokens: Sequence[str], field: str, errors: Errors
) -> dict[str, Any]:
    """All that decides the counts."""
    return {
        "inputs": fingerprint(inputs),
        "pattern": pattern_regex(pattern),
        "special_tokens": sorted(special_tokens),
        "field": field,
        "errors": errors,
    }


def _parts(
    merges: list[tuple[bytes, bytes]], special_tokens: Sequence[str], pattern: str
) -> TokenizerParts:
    tokens = [bytes([byte]) for byte in range(NUM_BYTES)]
    tokens += [left + right for left, right in merges]
    special_ids = {token: len(tokens) + i for i, token in enumerate(special_tokens)}
    tokens += [token.encode() for token in special_tokens]
    return TokenizerParts(dict(enumerate(tokens)), merges, special_ids, pattern)
