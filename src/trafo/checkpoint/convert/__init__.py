"""Weights in and out: Hugging Face folders, llama2.c files, GGUF files.

Every export is read back and compared; the largest difference of logits is stored beside it.
The names are imported on first use: importing torch is slow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.checkpoint.convert.gguf_file import load_gguf, save_gguf
    from trafo.checkpoint.convert.hugging_face import load_hugging_face, save_hugging_face
    from trafo.checkpoint.convert.llama2c import load_llama2c, save_llama2c
    from trafo.checkpoint.convert.parity import Parity, measure_parity

__all__ = [
    "Parity",
    "load_gguf",
    "load_hugging_face",
    "load_llama2c",
    "measure_parity",
    "save_gguf",
    "save_hugging_face",
    "save_llama2c",
]

_HOMES = {
    "Parity": "parity",
    "load_gguf": "gguf_file",
    "load_hugging_face": "hugging_face",
    "load_llama2c": "llama2c",
    "measure_parity": "parity",
    "save_gguf": "gguf_file",
    "save_hugging_face": "hugging_face",
    "save_llama2c": "llama2c",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
