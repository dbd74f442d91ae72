"""What each step reads: one token of every decoding sequence, and prompts in chunks.

Sequences start in the order of arrival, as soon as there is a place in the batch and room in the
cache. A long prompt is read in chunks while the others decode, so it does not stop them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trafo.generate.config import EngineConfig
from trafo.generate.engine.blocks import BlockPool
from trafo.generate.engine.sequence import Sequence
from trafo.generate.request import Request


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
        """Append to the queue."""
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
        """A sequence whose window moved is read again, from the front of the queue."""
        for sequence in list(self.running):
            if sequence.place_window():
                self.finish(sequence)
                self.waiting.appendleft(sequence)

    def _admit(self) -> None:
        """First come, first served, but one that waits for an equal prompt lets others pass."""
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
