"""Where the special tokens are in a text: the longest one at each place, from left to right.

Some tokenizers look for some of them in a second pass, only between those of the first, and some
normalize the text between the passes.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np

from trafo.tokenizer.formats.spec import special_bytes
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Int64s, Specials
from trafo.tokenizer.kernels.scan import SPECIAL_SHIFT, find_specials, scan_words, scan_words_gpt2
from trafo.tokenizer.kernels.scan_others import GPT2, GPT4, GPT4O, NONE, WHITESPACE
from trafo.tokenizer.kernels.unicode_classes import character_classes
from trafo.tokenizer.kernels.utf8 import first_invalid
from trafo.tokenizer.patterns import compile_pattern, normalize_nfc, split_words

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


# Llama 3 and cl100k are the same pattern.
SCANNERS = {
    "gpt2": GPT2,
    "gpt4": GPT4,
    "gpt4o": GPT4O,
    "llama3": GPT4,
    "whitespace": WHITESPACE,
    "none": NONE,
}

_WORDS_AT_ONCE = 1 << 14


class Scanner:
    """Splits text into words by a named pattern or a regular expression. One for each thread."""

    def __init__(self, pattern: str) -> None:
        number = SCANNERS.get(pattern, NONE)
        self._scan = scan_words_gpt2 if number == GPT2 else partial(scan_words, number)
        self._pattern = pattern
        self.is_named = pattern in SCANNERS
        self.cuts_at_spaces = number != NONE
        compile_pattern(pattern)  # refuse a wrong one here, not in the middle of a text
        self._classes = character_classes()
        self._ends = np.empty(_WORDS_AT_ONCE, np.int64)

    def words(
        self, data: Bytes, start: int, stop: int, specials: Specials
    ) -> Iterator[tuple[int, Ends]]:
        """Yields where the first word begins, and the stream of ends, some thousand at a time.

        The array is overwritten when the next one is asked for.
        """
        if not self.is_named:
            yield start, self._split_by_regex(data, start, stop, specials)
            return
        next_special = 0
        while start < stop or next_special < len(specials):
            first = start
            count, start, next_special = self._scan(
                data, self._classes, start, stop, specials, next_special, self._ends
            )
            yield first, self._ends[:count]

    def _split_by_regex(self, data: Bytes, start: int, stop: int, specials: Specials) -> Ends:
        ends: list[int] = []
        for special_start, special_stop, special in [*specials.tolist(), (stop, stop, -1)]:
            for word in split_words(data[start:special_start].tobytes().decode(), self._pattern):
                start += len(word.encode())
                ends.append(start)
            if special >= 0:
                start = special_stop
                ends.append((special + 1) << SPECIAL_SHIFT | start)
        return np.array(ends, np.int64)


# Greedy, so that it ends at the last such place.
_LAST_WORD_THEN_SPACE = re.compile(rb"(?s:.*)[A-Za-z0-9](?=[ \t\r\n])")
_WINDOW = 4096  # bytes searched for such a place before every word is looked at
_TRIES = 16  # places that may turn out to be inside special tokens
_WORDS_THAT_MAY_CHANGE = 2
_RECENT_WORDS = 8  # of which one is not white space: runs of that are at most three words


class Cutter:
    """Finds safe places for one pattern and one set of special tokens."""

    def __init__(self, pattern: str, finder: SpecialFinder) -> None:
        self._scanner = Scanner(pattern)
        self._finder = finder
        self._cuts_at_words = self._scanner.is_named and not finder.nfc
        self._cuts_at_spaces = self._scanner.cuts_at_spaces and not (
            finder.nfc and finder.has_two_passes
        )

    def last_safe_boundary(self, window: bytes) -> int | None:
        """A safe place in the middle of a text, found from the bytes around it alone.

        There the text may be cut whatever comes before and after the window: it lies before
        white space that follows an ASCII letter or digit, and inside nothing that could be a
        special token. None if there is none.
        """
        if not self._cuts_at_spaces:
            return None
        longest = self._finder.longest
        end = len(window) - max(0, longest - 1)
        for _ in range(_TRIES):
            found = _LAST_WORD_THEN_SPACE.match(window, 0, max(0, end))
            if found is None or found.end() < longest:
                return None
            end = found.end()
            if not self._finder.crosses(window, end):
                return end
        return None

    def cut(
        self, data: Bytes, start: int, stop: int, *, is_end: bool = False
    ) -> tuple[int, Specials]:
        """Where data[start:stop] may be cut, as late as possible, and the special tokens before.

        If the text ends at `stop`, that is where. If there is no safe place, it is `start`: more
        text is needed.
        """
        specials = self._finder.find(data, start, stop)
        if is_end:
            return stop, specials
        # After this, a special token may have begun that only more text will show.
        # It may also cut off the end of one that is found in the second pass.
        passes = 2 if self._finder.has_two_passes else 1
        limit = max(start, stop - passes * max(0, self._finder.longest - 1))
        specials = specials[specials[:, 0] < limit]
        last_special = int(specials[-1, 1]) if len(specials) else start
        if last_special >= limit:
            return last_special, specials
        return self._last_word_boundary(data, last_special, limit), specials

    def _last_word_boundary(self, data: Bytes, start: int, stop: int) -> int:
        """Find the last safe place in text without special tokens, or `start` if there is none."""
        window = max(start, stop - _WINDOW) if self._cuts_at_words else start
        if self._cuts_at_spaces and (
            found := _LAST_WORD_THEN_SPACE.match(data[window:stop].tobytes())
        ):
            return window + found.end()
        return self._scan_for_boundary(data, start, stop) if self._cuts_at_words else start

    def _scan_for_boundary(self, data: Bytes, start: int, stop: int) -> int:
        stop = whole_characters(data, start, stop)
        if first_invalid(data[start:stop]) >= 0:  # the scanner takes only valid UTF-8
            return start
        recent = [start]  # where the last words end
        for _, ends in self._scanner.words(data, start, stop, NO_SPECIALS):
            recent = [*recent, *ends[-_RECENT_WORDS:].tolist()][-_RECENT_WORDS:]
        for i in range(len(recent) - 1 - _WORDS_THAT_MAY_CHANGE, 0, -1):
            if not data[recent[i - 1] : recent[i]].tobytes().decode().isspace():
                return recent[i]
        return start


def whole_characters(data: Bytes, start: int, stop: int) -> int:
    """`stop`, or the start of the character that continues after it."""
    for back in range(1, min(4, stop - start + 1)):
        byte = int(data[stop - back])
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return stop - back if length > back else stop
        if byte < 0x80:
            break
    return stop
