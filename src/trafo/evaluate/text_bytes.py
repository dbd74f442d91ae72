"""How many bytes of text each id stands for: what makes losses of different vocabularies compare.

Bits per byte divide the loss of all tokens by the bytes of the text. A special token is no text,
so it counts 0 bytes; that it had to be predicted counts all the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.tokenizer import Tokenizer


def byte_lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The bytes of each id, by id; 0 for special tokens and ids that are none."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    special = set(tokenizer.special_tokens.values())
    for token_id, token in tokenizer.vocab.items():
        if token_id not in special:
            lengths[token_id] = len(token)
    return lengths
