"""Model -> ids -> text.

Readable: `reference` (no KV cache, no batches), then `sampling`, `decode` (KV cache) and `complete`
(text); for translation `beam_reference`, then `beam`, `beam_decoder` and `translate`. Fast:
`engine` (continuous batching) and the compiled steps `packed` and `packed_beam`.
The public names are imported on first use: importing torch is slow.
"""

from typing import TYPE_CHECKING

from trafo.lazy import on_first_use

if TYPE_CHECKING:
    from trafo.generate.attention_weights import Attention, attention
    from trafo.generate.complete import (
        Completion,
        generate,
        generate_ids,
        stream,
        stream_text,
    )
    from trafo.generate.config import GenerationConfig
    from trafo.generate.request import Piece
    from trafo.generate.sampling import Token

__all__ = [
    "Attention",
    "Completion",
    "GenerationConfig",
    "Piece",
    "Token",
    "attention",
    "generate",
    "generate_ids",
    "stream",
    "stream_text",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "attention_weights": ["Attention", "attention"],
        "complete": ["Completion", "generate", "generate_ids", "stream", "stream_text"],
        "config": ["GenerationConfig"],
        "request": ["Piece"],
        "sampling": ["Token"],
    },
)
