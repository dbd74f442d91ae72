"""One sample of a request while it grows: its ids, and how much of them is in the cache."""

from __future__ import annotations

from trafo.generate.config import GenerationConfig
from trafo.generate.engine.blocks import Pages
from trafo.generate.request import Piece, Request, next_piece
from trafo.generate.sampling import Token, sample_generator
from trafo.generate.text_stream import TextStream
from trafo.generate.window import window_start


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
