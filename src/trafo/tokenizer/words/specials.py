"""Where the special tokens are in a text: the longest one at each place, from left to right.

Some tokenizers look for some of them in a second pass, only between those of the first, and some
normalize the text between the passes.
"""

from collections.abc import Collection, Sequence

import numpy as np

from trafo.tokenizer.formats.spec import special_bytes
from trafo.tokenizer.kernels.arrays import Bytes, Int64s, Specials
from trafo.tokenizer.kernels.find_specials import find_specials
from trafo.tokenizer.patterns import normalize_nfc

NO_SPECIALS: Specials = np.zeros((0, 3), np.int64)

_Table = tuple[Bytes, Bytes, Int64s, Int64s]


class SpecialFinder:
    """A set of special tokens, ready to be searched for. Indexes are those of the list given.

    The tokens in `second_pass` are searched for in what the others have left; with `nfc`, after
    that text was normalized (`normalize`), so that `find` does not find them.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        document_end: int | None = None,
        *,
        second_pass: Collection[str] = (),
        nfc: bool = False,
    ) -> None:
        self.tokens = list(tokens)
        # The index of the end of a document among the special tokens found in a text.
        self.document_end = len(self.tokens) if document_end is None else document_end
        self.nfc = nfc
        self._encoded = encoded = [special_bytes(token) for token in self.tokens]
        self.longest = max(map(len, encoded), default=0)
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        self._first = _table(encoded, [i for i in order if self.tokens[i] not in second_pass])
        self._second = _table(encoded, [i for i in order if self.tokens[i] in second_pass])
        self.has_two_passes = self._second is not None

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
        found = _find(self._first, data, start, stop)
        return found if self.nfc else self._find_rest(data, start, stop, found)

    def normalize(
        self, data: Bytes, start: int, stop: int, specials: Specials
    ) -> tuple[Bytes, Specials]:
        """data[start:stop] in form NFC between the special tokens found, and all special tokens."""
        parts: list[bytes] = []
        moved = specials.copy()
        size = 0
        for row, (special_start, special_stop, _) in enumerate(
            [*specials.tolist(), (stop, stop, 0)]
        ):
            text = normalize_nfc(data[start:special_start].tobytes().decode()).encode()
            parts += [text, data[special_start:special_stop].tobytes()]
            start = special_stop
            size += len(text)
            if row < len(moved):
                moved[row, :2] = size, size + len(parts[-1])
            size += len(parts[-1])
        normalized = np.frombuffer(b"".join(parts), np.uint8)
        return normalized, self._find_rest(normalized, 0, size, moved)

    def _find_rest(self, data: Bytes, start: int, stop: int, found: Specials) -> Specials:
        """Add the special tokens of the second pass to those of the first."""
        if self._second is None:
            return found
        starts, stops = [start, *found[:, 1].tolist()], [*found[:, 0].tolist(), stop]
        spans = zip(starts, stops, strict=True)
        rest = [_find(self._second, data, *span) for span in spans if span[0] < span[1]]
        found = np.concatenate([found, *rest])
        return found[np.argsort(found[:, 0])]


def _table(encoded: Sequence[bytes], order: Sequence[int]) -> _Table | None:
    """Some of the tokens, in the order of their bytes, as the kernel reads them."""
    if not order:
        return None
    return (
        np.array(sorted({encoded[i][0] for i in order}), np.uint8),
        np.frombuffer(b"".join(encoded[i] for i in order) + b"\0", np.uint8),
        np.cumsum([len(encoded[i]) for i in order], dtype=np.int64),
        np.array(order, np.int64),
    )


def _find(table: _Table | None, data: Bytes, start: int, stop: int) -> Specials:
    if table is None:
        return NO_SPECIALS
    found = np.empty((64, 3), np.int64)
    count = 0
    while True:
        count, start = find_specials(data, start, stop, *table, found, count)
        if start >= stop:
            return found[:count]
        found = np.concatenate([found, np.empty_like(found)])
