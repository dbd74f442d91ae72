"""Several requests that are known from the beginning, decoded together until all are done.

By the engine with compiled kernels where they support the model, otherwise by the model itself.
Row i * num_samples + j is sample j of prompt i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from trafo.generate.config import GenerationConfig
from trafo.generate.decode import Decoding
from trafo.generate.engine import Engine, EngineConfig
from trafo.generate.request import Piece, Request, next_piece
from trafo.generate.text_stream import TextStream
from trafo.models import CausalLM
from trafo.runtime.memory import available_memory

_CHUNK_TOKENS = 512  # nobody waits for the others' next token: long prompts may stop them


class Batch(Protocol):
    """Requests being decoded."""

    @property
    def num_rows(self) -> int:
        """Rows that are not done."""

    def step(self) -> list[Piece]:
        """What one step of the model adds."""


def make_batch(model: CausalLM, requests: Sequence[Request]) -> Batch:
    """The fastest way to decode these requests, which all have the same config."""
    if not requests or not _is_compiled(model, requests[0].config):
        return TorchBatch(model, requests)
    return EngineBatch(model, requests)


def _is_compiled(model: CausalLM, config: GenerationConfig) -> bool:
    if config.kernel != "auto":
        return config.kernel == "compiled"
    from trafo.generate.packed.step import can_pack  # compiles when first used

    copied = sum(parameter.nbytes for parameter in model.parameters())
    room = available_memory()
    return can_pack(model) and (room is None or copied < room)


class EngineBatch:
    """By the engine. It copies the weights, so it does not follow a training that goes on."""

    def __init__(self, model: CausalLM, requests: Sequence[Request]) -> None:
        from trafo.generate.packed.step import PackedStep  # compiles when first used

        rows = sum(request.config.num_samples for request in requests)
        most = min(max(1, rows), EngineConfig.max_running)  # no larger cache than they need
        config = EngineConfig(chunk_tokens=_CHUNK_TOKENS, max_running=most)
        self._engine = Engine(model, config, PackedStep(model))
        self._first_rows = {}
        for number, request in enumerate(requests):
            self._first_rows[request] = number * request.config.num_samples
            self._engine.add(request)

    @property
    def num_rows(self) -> int:
        """Rows that are running or wait for a place."""
        return self._engine.num_running + self._engine.num_waiting

    def step(self) -> list[Piece]:
        """One step of the engine."""
        return [
            replace(piece, row=self._first_rows[request] + piece.row)
            for request, piece in self._engine.step()
        ]


class TorchBatch:
    """By the model itself."""

    def __init__(self, model: CausalLM, requests: Sequence[Request]) -> None:
        config = requests[0].config if requests else GenerationConfig()
        self._config = config
        self._decoding = Decoding(model, [request.prompt for request in requests], config)
        if not config.max_new_tokens:
            self._decoding.drop(self._decoding.rows)
        self._requests = [request for request in requests for _ in range(config.num_samples)]
        self._texts = [TextStream(request.vocab, config.stop) for request in self._requests]
        self._num_steps = 0

    @property
    def num_rows(self) -> int:
        """Rows that are not done."""
        return len(self._decoding.rows)

    def step(self) -> list[Piece]:
        """The next token of every row."""
        self._num_steps += 1
        is_last = self._num_steps >= self._config.max_new_tokens
        pieces = [
            next_piece(row, token, self._texts[row], self._requests[row].ends, is_last)
            for row, token in self._decoding.step()
        ]
        self._decoding.drop({piece.row for piece in pieces if piece.finish_reason})
        return pieces
