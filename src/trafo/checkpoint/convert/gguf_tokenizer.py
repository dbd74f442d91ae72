"""The tokenizer inside a GGUF file, as llama.cpp reads it."""

from types import ModuleType
from typing import Any

from trafo.errors import ConfigError
from trafo.tokenizer.formats.byte_alphabet import to_printable
from trafo.tokenizer.formats.spec import END_OF_TEXT
from trafo.tokenizer.tokenizer import Tokenizer

# llama.cpp's names for the ways of cutting text into words; it knows no others.
_SPLITS = {"gpt2": "gpt-2", "gpt4": "llama-bpe", "llama3": "llama-bpe", "gpt4o": "gpt-4o"}


def write_tokenizer(
    writer: Any, gguf: ModuleType, vocab_size: int, tokenizer: Tokenizer | None
) -> None:
    """Add the tokenizer's fields to a file that is being written."""
    if tokenizer is None:
        writer.add_tokenizer_model("no_vocab")
        return
    if tokenizer.pattern not in _SPLITS:
        raise ConfigError(
            f"llama.cpp does not know the split pattern {tokenizer.pattern!r}",
            hint="write the file without a tokenizer",
        )
    special = set(tokenizer.special_tokens.values())
    tokens, kinds = [], []
    for i in range(vocab_size):
        known = tokenizer.vocab.get(i)
        if known is None:  # the model has room for more ids than the tokenizer uses
            tokens.append(f"[unused {i}]")
            kinds.append(gguf.TokenType.UNUSED)
        else:
            tokens.append(known.decode() if i in special else to_printable(known))
            kinds.append(gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_SPLITS[tokenizer.pattern])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{to_printable(a)} {to_printable(b)}" for a, b in tokenizer.merges])
    writer.add_add_bos_token(False)
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    if end is not None:
        writer.add_bos_token_id(end)
        writer.add_eos_token_id(end)
