"""What each step reads: one token of every decoding sequence, and prompts in chunks.

Sequences start in the order of arrival, as soon as there is a place in the batch and room in the
cache. A long prompt is read in chunks while the others decode, so it does not stop them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trafo.generate.config import EngineConfig, GenerationConfig
from trafo.generate.engine.cache import BlockPool, Pages
from trafo.generate.request import Piece, Request, TextStream, next_piece, window_start
from trafo.generate.sampling import Token, sample_generator


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


class Sequence:
    """Prompt and new tokens. A text longer than the context is seen through a sliding window."""

    def __init__(
        self, request: Request, number: int, context_length: int, sampling: GenerationConfig
    ) -> None:
        config = request.config
        self.request = request
        self.number = number
        self.ids = list(request.prompt)
        self.num_new = 0
        self.sampling = sampling
        """settings that matter for one token; sequences with the same ones are sampled together"""
        self.generator = sample_generator(config.seed, number)
        self.pages: Pages | None = None
        self.num_read = 0
        """ids of the window that are in the cache"""
        self.start = 0
        """where the window begins"""
        self._context_length = context_length
        self._text = TextStream(request.vocab, config.stop)
        self.place_window()

    def place_window(self) -> bool:
        """Move the window if it is full; returns whether it moved."""
        share = self.request.config.kept_share
        start = window_start(len(self.ids), self._context_length, share)
        moved = start != self.start
        self.start = start
        return moved

    @property
    def window(self) -> list[int]:
        """The ids that the model sees."""
        return self.ids[self.start :]

    @property
    def num_unread(self) -> int:
        """Ids of the window that are not in the cache yet; 1 while decoding."""
        return len(self.ids) - self.start - self.num_read

    @property
    def most_tokens(self) -> int:
        """The most tokens that the cache has to hold for this sequence."""
        left = self.request.config.max_new_tokens - self.num_new
        return min(self._context_length, len(self.ids) - self.start + left)

    @property
    def text(self) -> tuple[list[int], int]:
        """All ids, and how many of them are the prompt."""
        return self.ids, len(self.request.prompt)

    def add(self, token: Token) -> Piece:
        """Append a sampled token; the piece says whether the sequence is finished."""
        self.ids.append(token.id)
        self.num_new += 1
        is_last = self.num_new >= self.request.config.max_new_tokens
        return next_piece(self.number, token, self._text, self.request.ends, is_last)
