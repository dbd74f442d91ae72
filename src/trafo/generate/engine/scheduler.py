"""What each step reads: one token of every decoding sequence, and prompts in chunks.

Sequences begin in the order in which they came, as soon as there is a place in the batch and room
in the cache. A long prompt is read in chunks beside the others' decoding, so it does not stop them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, get_args

from trafo.errors import require_at_least, require_choice
from trafo.generate.config import Kernel
from trafo.generate.engine.blocks import BlockPool
from trafo.generate.engine.sequence import Sequence
from trafo.generate.request import Request

Weights = Literal["float32", "int8"]


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Limits of an engine."""

    max_running: int = 64
    """maximum batch size: sequences that are decoded together"""
    chunk_tokens: int = 128
    """tokens per step: a long prompt is read in chunks, so that it does not stop the others"""
    cache_bytes: int = 512 * 2**20
    """memory of the KV cache, in bytes"""
    kernel: Kernel = "auto"
    """readable (the model itself), compiled (for this processor), or auto (where possible)"""
    weights: Weights = "float32"
    """dtype of the weights: float32, or int8, which takes a quarter of the memory and is faster"""
    threads: int | None = None
    """threads of the compiled kernels; None: as many as are fastest, found by timing the work"""

    def __post_init__(self) -> None:
        require_at_least(1, max_running=self.max_running, chunk_tokens=self.chunk_tokens)
        require_at_least(1, cache_bytes=self.cache_bytes, threads=self.threads)
        require_choice(get_args(Kernel), kernel=self.kernel)
        require_choice(get_args(Weights), weights=self.weights)


@dataclass(frozen=True)
class Chunk:
    """The next `num_tokens` unread ids of a sequence."""

    sequence: Sequence
    num_tokens: int

    @property
    def is_last(self) -> bool:
        """Whether the next token can be sampled after it."""
        return self.num_tokens == self.sequence.num_unread


class Scheduler:
    """Holds all sequences, waiting and running."""

    def __init__(self, pool: BlockPool, config: EngineConfig) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._pool = pool
        self._config = config

    def add(self, sequence: Sequence) -> None:
        """Last in the queue."""
        self.waiting.append(sequence)

    def plan(self) -> list[Chunk]:
        """What the next step reads."""
        self._slide()
        self._admit()
        decoding = [each for each in self.running if each.num_unread == 1]
        reading = [each for each in self.running if each.num_unread > 1]
        left = max(1, self._config.chunk_tokens - len(decoding))
        chunks = [Chunk(sequence, 1) for sequence in decoding]
        for sequence in reading:
            if not left:
                break
            chunks.append(Chunk(sequence, min(left, sequence.num_unread)))
            left -= chunks[-1].num_tokens
        return chunks

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out and free its place and its blocks."""
        self.running.remove(sequence)
        self._free(sequence)

    def cancel(self, request: Request) -> None:
        """Take all sequences of a request out."""
        for sequence in [each for each in self.running if each.request is request]:
            self.finish(sequence)
        self.waiting = deque(each for each in self.waiting if each.request is not request)

    def _slide(self) -> None:
        """A sequence whose window moved is read anew; without room for that it waits, first."""
        for sequence in list(self.running):
            if sequence.place_window():
                self.finish(sequence)
                self.waiting.appendleft(sequence)

    def _admit(self) -> None:
        """First come, first served; only who waits for an equal prompt lets others pass."""
        passed: list[Sequence] = []
        while self.waiting and len(self.running) < self._config.max_running:
            sequence = self.waiting.popleft()
            if self._pool.is_coming(sequence.window):
                passed.append(sequence)
                continue
            sequence.pages = self._pool.allocate(sequence.window, sequence.most_tokens)
            if sequence.pages is None:
                self.waiting.appendleft(sequence)
                break
            sequence.num_read = sequence.pages.num_cached
            self.running.append(sequence)
        self.waiting.extendleft(reversed(passed))

    def _free(self, sequence: Sequence) -> None:
        assert sequence.pages is not None
        self._pool.release(sequence.pages)
        sequence.pages = None
        sequence.num_read = 0
