"""Text -> ids. The public names, each imported when it is first used, so that none costs time."""

from typing import TYPE_CHECKING

from trafo.lazy import on_first_use

if TYPE_CHECKING:
    from trafo.tokenizer.encode_corpus import encode_files
    from trafo.tokenizer.formats.spec import END_OF_TEXT
    from trafo.tokenizer.inputs import Inputs, open_inputs
    from trafo.tokenizer.token_file import TokenFile
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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "formats.spec": ["END_OF_TEXT"],
        "inputs": ["Inputs", "open_inputs"],
        "encode_corpus": ["encode_files"],
        "token_file": ["TokenFile"],
        "tokenizer": ["Tokenizer"],
        "train": ["train_bpe", "train_tokenizer"],
    },
)
