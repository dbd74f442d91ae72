"""Text -> words: the split patterns over UTF-8 bytes.

In: valid UTF-8 and the places of special tokens in it. Out: where each word ends, in one stream
that also carries the special tokens, so that what follows (counting, encoding) is a single loop.
The named patterns are compiled scanners that give exactly the words that the `regex` package
gives for the regular expressions in `patterns.py`; any other expression is left to that package.
No named pattern looks back, so a scan may resume at any word's end.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from trafo.tokenizer.kernels.arrays import Bytes, Ends, Specials
from trafo.tokenizer.kernels.scan import SPECIAL_SHIFT, scan_words, scan_words_gpt2
from trafo.tokenizer.kernels.scan_others import GPT2, GPT4, GPT4O, NONE, WHITESPACE
from trafo.tokenizer.kernels.unicode_classes import character_classes
from trafo.tokenizer.patterns import compile_pattern, split_words

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
            yield start, self._words_by_regex(data, start, stop, specials)
            return
        next_special = 0
        while start < stop or next_special < len(specials):
            first = start
            count, start, next_special = self._scan(
                data, self._classes, start, stop, specials, next_special, self._ends
            )
            yield first, self._ends[:count]

    def _words_by_regex(self, data: Bytes, start: int, stop: int, specials: Specials) -> Ends:
        ends: list[int] = []
        for special_start, special_stop, special in [*specials.tolist(), (stop, stop, -1)]:
            for word in split_words(data[start:special_start].tobytes().decode(), self._pattern):
                start += len(word.encode())
                ends.append(start)
            if special >= 0:
                start = special_stop
                ends.append((special + 1) << SPECIAL_SHIFT | start)
        return np.array(ends, np.int64)
