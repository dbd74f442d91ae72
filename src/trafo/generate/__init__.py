"""Model -> ids -> text.

Read `reference` first (no KV cache, no batches), then `sampling`, `engine` (continuous batching on
a paged KV cache) and `complete` (text). For translation: `beam_reference`, `beam`, `translate`.
`packed` computes the step of the engine with compiled kernels.
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
        search,
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
    "search",
    "stream",
    "stream_text",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "attention_weights": ["Attention", "attention"],
        "complete": ["Completion", "generate", "generate_ids", "search", "stream", "stream_text"],
        "config": ["GenerationConfig"],
        "request": ["Piece"],
        "sampling": ["Token"],
    },
)
