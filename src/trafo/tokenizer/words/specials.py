"""Where the special tokens are in a text: the longest one at each place, from left to right."""

from collections.abc import Sequence

import numpy as np

from trafo.tokenizer.formats.spec import special_bytes
from trafo.tokenizer.kernels.arrays import Bytes, Specials
from trafo.tokenizer.kernels.find_specials import find_specials

NO_SPECIALS: Specials = np.zeros((0, 3), np.int64)


class SpecialFinder:
    """A set of special tokens, ready to be searched for. Indexes are those of the list given."""

    def __init__(self, tokens: Sequence[str], document_end: int | None = None) -> None:
        self.tokens = list(tokens)
        # The index of the end of a document among the special tokens found in a text.
        self.document_end = len(self.tokens) if document_end is None else document_end
        self._encoded = encoded = [special_bytes(token) for token in self.tokens]
        self.longest = max(map(len, encoded), default=0)
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        self._tables = (
            np.array(sorted({token[0] for token in encoded}), np.uint8),
            np.frombuffer(b"".join(encoded[i] for i in order) + b"\0", np.uint8),
            np.cumsum([len(encoded[i]) for i in order], dtype=np.int64),
            np.array(order, np.int64),
        )

    def crosses(self, text: bytes, place: int) -> bool:
        """Whether text[:place] ends with the beginning of a special token and the rest follows.

        It need not be one that `find` would find: another may overlap it.
        """
        return any(
            text.find(token, max(0, place - len(token) + 1), place + len(token) - 1) >= 0
            for token in self._encoded
        )

    def find(self, data: Bytes, start: int, stop: int) -> Specials:
        """All special tokens in data[start:stop]."""
        if not self.tokens:
            return NO_SPECIALS
        found = np.empty((64, 3), np.int64)
        count = 0
        while True:
            count, start = find_specials(data, start, stop, *self._tables, found, count)
            if start >= stop:
                return found[:count]
            found = np.concatenate([found, np.empty_like(found)])
