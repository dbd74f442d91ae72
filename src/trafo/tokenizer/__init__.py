"""Text -> ids. The public names, each imported when it is first used, so that none costs time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.tokenizer.formats.spec import END_OF_TEXT
    from trafo.tokenizer.reading.inputs import Inputs, open_inputs
    from trafo.tokenizer.token_files.encode_files import encode_files
    from trafo.tokenizer.token_files.token_file import TokenFile
    from trafo.tokenizer.tokenizer import Tokenizer
    from trafo.tokenizer.train import train_bpe, train_tokenizer

__all__ = [
    "END_OF_TEXT",
    "Inputs",
    "TokenFile",
    "Tokenizer",
    "encode_files",
    "open_inputs",
    "train_bpe",
    "train_tokenizer",
]

_HOMES = {
    "END_OF_TEXT": "formats.spec",
    "Inputs": "reading.inputs",
    "TokenFile": "token_files.token_file",
    "Tokenizer": "tokenizer",
    "encode_files": "token_files.encode_files",
    "open_inputs": "reading.inputs",
    "train_bpe": "train",
    "train_tokenizer": "train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
