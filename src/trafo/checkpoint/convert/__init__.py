"""Weights in and out: Hugging Face folders, llama2.c files, GGUF files; CTranslate2 files in.

Every export is read back and compared; the largest difference of logits is stored beside it.
The names are imported on first use: importing torch is slow.
"""

from typing import TYPE_CHECKING

from trafo.lazy import on_first_use

if TYPE_CHECKING:
    from trafo.checkpoint.convert.ctranslate2 import load_ctranslate2
    from trafo.checkpoint.convert.gguf_file import load_gguf, save_gguf
    from trafo.checkpoint.convert.hugging_face import load_hugging_face, save_hugging_face
    from trafo.checkpoint.convert.llama2c import load_llama2c, save_llama2c
    from trafo.checkpoint.convert.parity import Parity, measure_parity

__all__ = [
    "Parity",
    "load_ctranslate2",
    "load_gguf",
    "load_hugging_face",
    "load_llama2c",
    "measure_parity",
    "save_gguf",
    "save_hugging_face",
    "save_llama2c",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "ctranslate2": ["load_ctranslate2"],
        "gguf_file": ["load_gguf", "save_gguf"],
        "hugging_face": ["load_hugging_face", "save_hugging_face"],
        "llama2c": ["load_llama2c", "save_llama2c"],
        "parity": ["Parity", "measure_parity"],
    },
)
