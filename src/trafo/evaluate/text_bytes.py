"""Bytes of text per token id, for bits per byte: comparable across vocabularies.

Bits per byte is the loss of all tokens divided by the bytes of the text. A special token has 0
bytes, but its loss counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.tokenizer import Tokenizer


def byte_lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Number of bytes of each id; 0 for special tokens and unused ids."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    special = set(tokenizer.special_tokens.values())
    for token_id, token in tokenizer.vocab.items():
        if token_id not in special:
            lengths[token_id] = len(token)
    return lengths
