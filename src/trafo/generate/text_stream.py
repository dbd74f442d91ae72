"""Ids -> streamed text of one completion: whole characters, and nothing of a stop string.

Text that may be the beginning of a stop string is held back until that is decided.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence


class TextStream:
    """`feed` it ids, print what it returns. `stopped` is true at a stop string."""

    def __init__(self, vocab: Mapping[int, bytes], stop: Sequence[str] = ()) -> None:
        self.stopped = False
        self._vocab = vocab
        self._stop = stop
        self._held = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_id: int) -> str:
        """The text that is certain now; ids outside the vocabulary have no text."""
        text = self._held + self._decoder.decode(self._vocab.get(token_id, b""))
        if not self._stop:
            return text
        found = self._first_stop(text)
        if found is not None:
            self.stopped = True
            self._held = ""
            return text[:found]
        certain = len(text) - self._possible_beginning(text)
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """The text held back, at the end. An incomplete last character is left out."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> int | None:
        """Where the stop string that is complete first begins.

        Complete first, not begun first: so the result does not depend on how tokens cut the text.
        """
        places = [(text.find(stop), len(stop)) for stop in self._stop]
        found = [(start + length, start) for start, length in places if start >= 0]
        return min(found)[1] if found else None

    def _possible_beginning(self, text: str) -> int:
        """How many characters at the end could be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stop)) - 1)
        for length in range(longest, 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop):
                return length
        return 0
