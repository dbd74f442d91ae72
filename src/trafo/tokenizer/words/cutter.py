"""Where a text may be cut in two without changing its words.

A text of which only the beginning is known is cut where no word and no special token can cross,
whatever comes next. Then the chunks can be scanned apart, by any number of threads, and give the
words of the whole. Such a place is

 - after a special token;
 - before white space that follows an ASCII letter or digit: no named pattern has a word in which
   these two are side by side, and none looks back;
 - before the last two words of the beginning: more text can change the last word (it may continue)
   and the one before (`'` `l` becomes `'ll`), but no earlier one. It must not be after a word of
   white space, which may end where it does only because of the letter after it (`\\s+(?!\\S)`).

A user's own expression may look anywhere, so only the first kind is safe for it. The third kind is
not safe for a text that is normalized later, because it may be inside a composed character; nor is
the second if special tokens are looked for only then.
"""

import re

from trafo.tokenizer.kernels.arrays import Bytes, Specials
from trafo.tokenizer.kernels.utf8 import first_invalid
from trafo.tokenizer.words.scanner import Scanner
from trafo.tokenizer.words.specials import NO_SPECIALS, SpecialFinder

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

    def last_certain_place(self, window: bytes) -> int | None:
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
        return self._before_word(data, last_special, limit), specials

    def _before_word(self, data: Bytes, start: int, stop: int) -> int:
        """The last safe place in text without special tokens; `start` if there is none."""
        window = max(start, stop - _WINDOW) if self._cuts_at_words else start
        if self._cuts_at_spaces and (
            found := _LAST_WORD_THEN_SPACE.match(data[window:stop].tobytes())
        ):
            return window + found.end()
        return self._before_last_words(data, start, stop) if self._cuts_at_words else start

    def _before_last_words(self, data: Bytes, start: int, stop: int) -> int:
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
