"""Several requests that are all known at the start, decoded together: the pieces of each step.

By the engine with compiled kernels where they support the model, otherwise by the model itself.
Row i * num_samples + j is sample j of prompt i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from trafo.generate.config import GenerationConfig
from trafo.generate.decode import Decoding
from trafo.generate.engine import Engine, EngineConfig
from trafo.generate.request import Piece, Request, next_piece
from trafo.generate.text_stream import TextStream
from trafo.models import CausalLM
from trafo.runtime.memory import available_memory
from trafo.runtime.threads import ThreadChooser

_CHUNK_TOKENS = 512  # larger than in the service: no client waits for its next token

Timed = Callable[[float], AbstractContextManager[object]]


def decode_batch(
    model: CausalLM, requests: Sequence[Request], threads: ThreadChooser | None = None
) -> Iterator[list[Piece]]:
    """What each step adds, until all rows are done. The requests have the same config.

    `threads` chooses the number of CPU threads by timing the steps.
    """
    if not requests:
        return iter(())
    decode = _by_engine if uses_kernels(model, requests[0].config) else _by_model
    return decode(model, requests, nullcontext if threads is None else threads.timed)


def uses_kernels(model: CausalLM, config: GenerationConfig) -> bool:
    """Whether compiled kernels decode; `auto`: if they support the model and memory allows it."""
    if config.kernel != "auto":
        return config.kernel == "compiled"
    from trafo.generate.packed.step import can_pack  # compiles when first used

    copied = sum(parameter.nbytes for parameter in model.parameters())
    room = available_memory()
    return can_pack(model) and (room is None or copied < room)


def _by_engine(model: CausalLM, requests: Sequence[Request], timed: Timed) -> Iterator[list[Piece]]:
    """The engine copies the weights: it does not see later updates of a training."""
    from trafo.generate.packed.step import PackedStep  # compiles when first used

    num_rows = sum(request.config.num_samples for request in requests)
    max_running = min(num_rows, EngineConfig.max_running)  # no larger cache than they need
    config = EngineConfig(chunk_tokens=_CHUNK_TOKENS, max_running=max_running)
    engine = Engine(model, config, PackedStep(model))
    first_rows = {}
    for number, request in enumerate(requests):
        first_rows[request] = number * request.config.num_samples
        engine.add(request)
    while left := engine.num_running + engine.num_waiting:
        with timed(left):
            done = engine.step()
        pieces = []
        for request, piece in done:
            if isinstance(piece, Exception):
                raise piece
            pieces.append(replace(piece, row=first_rows[request] + piece.row))
        yield pieces


def _by_model(model: CausalLM, requests: Sequence[Request], timed: Timed) -> Iterator[list[Piece]]:
    config = requests[0].config
    decoding = Decoding(model, [request.prompt for request in requests], config)
    samples = [request for request in requests for _ in range(config.num_samples)]
    texts = [TextStream(request.vocab, config.stop) for request in samples]
    for left in reversed(range(config.max_new_tokens)):
        if not decoding.rows:
            return
        with timed(len(decoding.rows)):
            pieces = [
                next_piece(row, token, texts[row], samples[row].ends, left == 0)
                for row, token in decoding.step()
            ]
            decoding.drop({piece.row for piece in pieces if piece.finish_reason})
        yield pieces
