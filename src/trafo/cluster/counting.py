"""Words counted on a cluster: pieces of the text -> counts, divided by the words' hash -> sums.

Each worker counts a piece and divides its words into groups by their hash; for each group another
task adds up the counts of all pieces of a wave. So only the words of a wave's sum, each once, come
to the driver, a part at a time, and go to the store on its disk. A wave is saved as a whole: a
driver that is killed resumes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from trafo.cluster.connect import check_shared_files, connected, num_cpus
from trafo.cluster.tasks import Shared, Tasks
from trafo.tokenizer.chunks import Chunker, Piece, chunks_of, plan_pieces
from trafo.tokenizer.count_store import NUM_PARTITIONS, CountStore
from trafo.tokenizer.counting import WordCounter, WordCounts
from trafo.tokenizer.inputs import Inputs
from trafo.tokenizer.train import CountBackend
from trafo.tokenizer.words import SpecialFinder

SMALLEST_PIECE, LARGEST_PIECE = 4 << 20, 256 << 20  # bytes
PIECES_PER_CPU = 4  # each piece has the frequent words again, so more of them cost more
PIECES_PER_WAVE = 128


@dataclass(frozen=True)
class CountingJob:
    """What a worker needs to know."""

    inputs: Inputs
    pattern: str
    special_tokens: tuple[str, ...]
    num_groups: int


def piece_size(total: int, smallest: int, largest: int) -> int:
    """So many bytes that every CPU gets several pieces, and the last ones end together."""
    return min(largest, max(smallest, total // (PIECES_PER_CPU * max(1, num_cpus()))))


@contextmanager
def counting_on(on: str, num_workers: int | None = None) -> Iterator[CountBackend]:
    """Count on a cluster for `train_tokenizer`, with the arguments of `connected`."""
    with connected(on, num_workers):
        yield RayCounter


class RayCounter:
    """Counts all pieces on the cluster, as a `trafo.tokenizer.count_store.CorpusCounter`."""

    def __init__(self, chunker: Chunker, pattern: str, store: CountStore) -> None:
        check_shared_files(chunker.inputs)
        self.num_bytes = store.num_bytes
        self._chunker = chunker
        self._store = store
        self._end = store.position
        # As many groups as CPUs can work on, so that small ones do not become too small.
        self._num_groups = min(NUM_PARTITIONS, 1 << max(1, num_cpus() - 1).bit_length())
        specials = tuple(chunker.finder.tokens)
        job = CountingJob(chunker.inputs, pattern, specials, self._num_groups)
        self._counting = Tasks(count_piece, job)
        self._adding = Tasks(sum_group, self._num_groups)

    def run(self, advance: Callable[[float], None]) -> None:
        """Count to the end, wave after wave."""
        position = self._store.position
        advance(self._chunker.disk_bytes_before(position))
        if position == self._chunker.end:
            return
        size = piece_size(self._chunker.inputs.size, SMALLEST_PIECE, LARGEST_PIECE)
        pieces = plan_pieces(self._chunker, size, position)
        while groups := self._count(islice(pieces, PIECES_PER_WAVE), advance):
            self._store.add_partitions(self._sums(groups), self._end, self.num_bytes)
        if self._store.position != self._chunker.end:
            self._store.add_partitions(_empty_partitions(), self._chunker.end, self.num_bytes)

    def _count(self, wave: Iterator[Piece], advance: Callable[[float], None]) -> list[list[Any]]:
        """Count the pieces of a wave, and return references to the groups of each one's words."""
        outputs: list[list[Any]] = []
        under_way: dict[Any, int] = {}  # bytes on disk
        with self._counting.cancel_on_exit():
            for piece in chain(wave, [None]):  # None: nothing is left but to wait
                while under_way and (piece is None or not self._counting.has_room):
                    done, num_bytes = self._counting.next_done()
                    self.num_bytes += num_bytes
                    advance(under_way.pop(done))
                if piece is not None:
                    num_returns = 1 + self._num_groups
                    size, *groups = self._counting.submit(piece, num_returns=num_returns)
                    under_way[size] = piece.disk_bytes
                    outputs.append(groups)
                    self._end = piece.end
        return outputs

    def _sums(self, outputs: list[list[Any]]) -> Iterator[WordCounts]:
        """Fetch the counts of a wave, one partition at a time."""
        per_group = NUM_PARTITIONS // self._num_groups
        with self._adding.cancel_on_exit():
            sums = [
                self._adding.submit(group, *pieces, num_returns=per_group)
                for group, pieces in enumerate(zip(*outputs, strict=True))
            ]
            for i in range(NUM_PARTITIONS):
                reference = sums[i % self._num_groups][i // self._num_groups]
                yield _as_writable(self._adding.get(reference))


def count_piece(shared: Shared[CountingJob], piece: Piece) -> tuple[Any, ...]:
    """A task: the bytes of text in a piece, and its words in groups of partitions."""
    job, chunker = shared.prepare(_with_chunker)
    counter = WordCounter(job.pattern)
    num_bytes = 0
    for planned in chunks_of(piece, chunker):
        chunk = chunker.read(planned)
        counter.count(chunk.data, chunk.specials)
        num_bytes += len(chunk.data)
    return num_bytes, *(counter.export(i, job.num_groups) for i in range(job.num_groups))


def sum_group(
    shared: Shared[int], group: int, *pieces: WordCounts
) -> tuple[WordCounts, ...] | WordCounts:
    """A task: the sum of one group of all pieces, partition by partition.

    With the number of groups g, group i has the partitions i, i + g, i + 2g, ...
    """
    num_groups = shared.prepare(int)
    total = WordCounter("none", num_words=max(map(len, pieces)))
    for piece in pieces:
        total.add(_as_writable(piece))
    partitions = range(group, NUM_PARTITIONS, num_groups)
    sums = tuple(total.export(i, NUM_PARTITIONS) for i in partitions)
    return sums if len(sums) > 1 else sums[0]


def _with_chunker(job: CountingJob) -> tuple[CountingJob, Chunker]:
    return job, Chunker(job.inputs, job.pattern, SpecialFinder(job.special_tokens))


def _as_writable(words: WordCounts) -> WordCounts:
    """Copy read-only arrays of Ray's shared memory, as kernels are compiled for writable ones."""
    return WordCounts(words.text, np.array(words.ends), np.array(words.counts))


def _empty_partitions() -> Iterator[WordCounts]:
    empty = WordCounter("none")
    return (empty.export(i, NUM_PARTITIONS) for i in range(NUM_PARTITIONS))
