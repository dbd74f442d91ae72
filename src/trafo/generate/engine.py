"""Many requests at once on one model: they join and leave between steps.

engine = Engine(model)
engine.add(request)
while engine.has_work:
    for request, piece in engine.step(): ...
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trafo.generate.decode import Decoding, check_prompt
from trafo.generate.request import Piece, Request, next_piece
from trafo.generate.text_stream import TextStream
from trafo.models import CausalLM


@dataclass
class _Running:
    decoding: Decoding
    texts: list[TextStream]
    num_tokens: int = 0


@dataclass
class Engine:
    """Not for several threads at once: one thread adds, steps and cancels."""

    model: CausalLM
    _running: dict[Request, _Running] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that have not begun."""
        return 0

    def check(self, request: Request) -> None:
        """Refuse a request that the model cannot answer."""
        check_prompt(self.model, request.prompt)

    def add(self, request: Request) -> None:
        """Take a request in."""
        decoding = Decoding(self.model, [request.prompt], request.config)
        texts = [TextStream(request.vocab, request.config.stop) for _ in decoding.rows]
        self._running[request] = _Running(decoding, texts)

    def cancel(self, request: Request) -> None:
        """Forget a request; nothing happens if it is done."""
        self._running.pop(request, None)

    def step(self) -> list[tuple[Request, Piece]]:
        """One more token for every running sample."""
        done = []
        for request, running in list(self._running.items()):
            pieces = self._advance(request, running)
            done += [(request, piece) for piece in pieces]
            if not running.decoding.rows:
                del self._running[request]
        return done

    def _advance(self, request: Request, running: _Running) -> list[Piece]:
        running.num_tokens += 1
        is_last = running.num_tokens >= request.config.max_new_tokens
        pieces = [
            next_piece(row, token, running.texts[row], request.ends, is_last)
            for row, token in running.decoding.step()
        ]
        running.decoding.drop({piece.row for piece in pieces if piece.finish_reason})
        return pieces
