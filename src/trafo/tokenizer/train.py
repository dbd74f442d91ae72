"""Text -> a tokenizer: count the words, then merge pairs.

`train_bpe` is the plain interface: a file in, vocabulary and merges out. `train_tokenizer` says
more and can be interrupted: given a folder to work in, it resumes after a kill, and counts the
same text only once for any number of vocabulary sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from trafo.errors import InputError, check_types, require_at_least, require_lists
from trafo.runtime.machine import peak_memory
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_size
from trafo.runtime.threads import resolve_num_workers
from trafo.tokenizer.block_merging import merge_in_blocks
from trafo.tokenizer.chunks import CHUNK_SIZE, Chunker
from trafo.tokenizer.count_store import CorpusCounter, CountStore, LocalCounter
from trafo.tokenizer.counting import (
    WordCounter,
    WordCounts,
    WordTotals,
    concatenate_counts,
    merge_counts,
)
from trafo.tokenizer.files import Errors
from trafo.tokenizer.formats.spec import MAX_ID, TokenizerSpec
from trafo.tokenizer.inputs import Inputs, Paths, open_inputs
from trafo.tokenizer.kernels.arrays import NUM_BYTES
from trafo.tokenizer.kernels.utf8 import first_invalid
from trafo.tokenizer.merging import Merge, Merger, merging_memory
from trafo.tokenizer.patterns import pattern_regex
from trafo.tokenizer.words import SpecialFinder

CountBackend = Callable[[Chunker, str, CountStore], CorpusCounter]
"""makes what counts the chunks, given the pattern, into the store"""

LEAST_MEMORY = 16 << 20  # what training takes in any case, and for each worker


@dataclass(frozen=True)
class Training:
    """A trained tokenizer and what it took."""

    spec: TokenizerSpec
    seconds: dict[str, float]  # per phase
    peak_memory: int
    num_bytes: int
    num_distinct_words: int
    num_words: int


@check_types
def train_bpe(
    input_path: Paths | Inputs, vocab_size: int, special_tokens: Sequence[str] = (), **options: Any
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Learn byte-level BPE: ids 0..255 are the bytes, then the merges, then the special tokens.

    The options are those of `train_tokenizer`.
    """
    spec = train_tokenizer(input_path, vocab_size, special_tokens, **options).spec
    return spec.vocab, spec.merges


@check_types
def train_tokenizer(
    inputs: Paths | Inputs,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    pattern: str = "gpt2",
    num_workers: int | None = None,
    chunk_size: int = CHUNK_SIZE,
    field: str = "text",
    errors: Errors = "strict",
    max_memory: int | None = None,
    work_dir: str | Path | None = None,
    backend: CountBackend | None = None,
) -> Training:
    """Train on files, folders or globs, in the formats of `inputs.py`.

    `field` names the text in JSON lines and Parquet. `errors="replace"` reads U+FFFD where a file
    is not UTF-8. `max_memory`, in bytes, is how much training may take beyond the program itself.
    `work_dir` keeps the counts: a killed run resumes from them, and a larger vocabulary does not
    need the text again. `backend` counts on other machines (see `trafo.cluster`). Only
    `pattern`, `field` and `errors` change the result.
    """
    require_lists(special_tokens=special_tokens)
    special_tokens = list(dict.fromkeys(special_tokens))
    num_merges = _check_vocab_size(vocab_size, special_tokens)
    workers = resolve_num_workers(num_workers)
    require_at_least(1, chunk_size=chunk_size)
    if max_memory is not None:
        workers, chunk_size = _fit_into_memory(workers, chunk_size, max_memory)
    inputs = open_inputs(inputs, field, errors)
    chunker = Chunker(inputs, pattern, SpecialFinder(special_tokens), chunk_size, max_memory)
    seconds: dict[str, float] = {}
    with _timer(seconds, "loading kernels"):
        _load_kernels(pattern)
    needs_store = max_memory is not None or backend is not None
    fingerprint = count_fingerprint(training_fingerprint(inputs, pattern, special_tokens))
    with _open_store(work_dir, needs_store, fingerprint) as store:
        if backend is not None and store is not None:
            counter = backend(chunker, pattern, store)
        else:
            counter = _local_counter(chunker, pattern, workers, store, max_memory)
        with (
            _timer(seconds, "counting"),
            progress("counting words", total=inputs.size, unit="MB", scale=1e6) as bar,
        ):
            counter.run(bar.advance)
            words, totals = _collect_counts(counter, store)
        with (
            _timer(seconds, "merging"),
            progress("merging pairs", total=num_merges, unit="merges") as bar,
        ):
            folder = store.folder if store else None
            merges = _find_merges(words, totals, num_merges, max_memory, folder, bar.advance)
    return Training(
        spec=_make_spec(merges, special_tokens, pattern),
        seconds=seconds,
        peak_memory=peak_memory(),
        num_bytes=counter.num_bytes,
        num_distinct_words=totals.num_distinct,
        num_words=totals.num_words,
    )


@contextmanager
def _timer(seconds: dict[str, float], phase: str) -> Iterator[None]:
    start = perf_counter()
    yield
    seconds[phase] = perf_counter() - start


@contextmanager
def _open_store(
    work_dir: str | Path | None, needs_store: bool, fingerprint: Mapping[str, Any]
) -> Iterator[CountStore | None]:
    """Where counts are kept: in `work_dir`, in a temporary folder if need be, or nowhere."""
    with ExitStack() as stack:
        if work_dir is None and needs_store:
            work_dir = stack.enter_context(TemporaryDirectory(prefix="trafo-counts-"))
        if work_dir is None:
            yield None
        else:
            yield stack.enter_context(CountStore(Path(work_dir), fingerprint))


def training_fingerprint(
    inputs: Inputs, pattern: str, special_tokens: Sequence[str]
) -> dict[str, Any]:
    """Everything that decides a training run, except the size of the vocabulary.

    A smaller vocabulary is a prefix of a larger one, and both come from the same counts.
    """
    return {
        **inputs.fingerprint(),
        "pattern": pattern_regex(pattern),
        "special_tokens": list(dict.fromkeys(special_tokens)),
    }


def count_fingerprint(training: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the counts: neither the vocabulary size nor the order of special tokens."""
    fingerprint = {name: value for name, value in training.items() if name != "vocab_size"}
    return {**fingerprint, "special_tokens": sorted(training["special_tokens"])}


def _local_counter(
    chunker: Chunker, pattern: str, workers: int, store: CountStore | None, max_memory: int | None
) -> CorpusCounter:
    """Counts on this machine, with an eighth of the memory allowed."""
    most_memory = None if max_memory is None else max_memory // 8
    return LocalCounter(chunker, pattern, workers, store, most_memory)


def _collect_counts(
    counter: CorpusCounter, store: CountStore | None
) -> tuple[Iterable[WordCounts], WordTotals]:
    """The counted words, in memory or in a store, and their sizes."""
    if store is not None:
        store.join_runs()
        return store.partitions(), store.totals()
    assert isinstance(counter, LocalCounter)
    words = merge_counts(each.export() for each in counter.counters)
    return [words], words.totals()


def _find_merges(
    words: Iterable[WordCounts],
    totals: WordTotals,
    num_merges: int,
    max_memory: int | None,
    folder: Path | None,
    advance: Callable[[int], None],
) -> list[Merge]:
    """All at once if the words fit into the memory allowed, else in blocks."""
    needed = merging_memory(totals.num_bytes, totals.num_distinct, num_merges)
    if max_memory is not None and needed > 3 * max_memory // 4:
        return merge_in_blocks(words, num_merges, max_memory, folder, advance)
    return Merger(concatenate_counts(words), num_merges).run(advance)


def _load_kernels(pattern: str) -> None:
    """Use every kernel once, so that the first phase is not charged for loading them."""
    text = np.frombuffer(b"a bb bb", np.uint8)
    first_invalid(text)
    counter = WordCounter(pattern)
    counter.count(text, SpecialFinder(["|"]).find(text, 0, len(text)))
    Merger(counter.export(), 1).run()


def _fit_into_memory(workers: int, chunk_size: int, max_memory: int) -> tuple[int, int]:
    """As many workers and as large chunks as the memory allows.

    Each worker has a few chunks, whose words may take 24 times their space in its table.
    """
    if max_memory < LEAST_MEMORY:
        raise InputError(
            f"max_memory is {format_size(max_memory)}",
            hint=f"it must be at least {format_size(LEAST_MEMORY)}",
        )
    workers = min(workers, max_memory // LEAST_MEMORY)
    return workers, min(chunk_size, max_memory // (256 * workers))


def _check_vocab_size(vocab_size: int, special_tokens: Sequence[str]) -> int:
    smallest = NUM_BYTES + len(special_tokens)
    if vocab_size < smallest:
        raise InputError(
            f"a vocabulary of {vocab_size:,} is too small",
            hint=f"{NUM_BYTES} bytes and {len(special_tokens)} special tokens need {smallest:,}",
        )
    if vocab_size - 1 > MAX_ID:
        raise InputError(
            f"a vocabulary of {vocab_size:,} is too large", hint=f"ids go up to {MAX_ID:,}"
        )
    return vocab_size - smallest


def _make_spec(
    merges: list[tuple[bytes, bytes]], special_tokens: Sequence[str], pattern: str
) -> TokenizerSpec:
    tokens = [bytes([byte]) for byte in range(NUM_BYTES)]
    tokens += [left + right for left, right in merges]
    special_ids = {token: len(tokens) + i for i, token in enumerate(special_tokens)}
    tokens += [token.encode() for token in special_tokens]
    return TokenizerSpec(dict(enumerate(tokens)), merges, special_ids, pattern)
