"""Model -> ids -> text. The public names, each imported on first use: importing torch is slow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from trafo.generate.decode import Decoding
    from trafo.generate.request import Piece
    from trafo.generate.sampling import Token

__all__ = [
    "Attention",
    "Completion",
    "Decoding",
    "GenerationConfig",
    "Piece",
    "Token",
    "attention",
    "generate",
    "generate_ids",
    "stream",
    "stream_text",
]

_HOMES = {
    "Attention": "attention_weights",
    "attention": "attention_weights",
    "GenerationConfig": "config",
    "Decoding": "decode",
    "Piece": "request",
    "Token": "sampling",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'complete')}"), name)
