"""Text -> words: the named split patterns, and any other regular expression.

In: a pattern's name or a regular expression of the `regex` package. Out: the expression, compiled,
or the words of a text. BPE never merges across words. The named patterns are those of GPT-2,
cl100k (GPT-4), o200k (GPT-4o) and Llama 3. This module defines them; `kernels/scan.py` runs them
much faster.

Expressions joined by `(?#then)` split one after the other, each within the words that the one
before has left, as a sequence of pre-tokenizers does: to a later one, a word is a whole text.

`normalize_nfc` is what some tokenizers do to a text before they split it.

Character classes are those of Unicode 16.0, as in tiktoken and Hugging Face's `tokenizers`,
whatever version the installed `regex` package has: what 16.0 does not assign has no class.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import normalize

import regex

from trafo.errors import InputError, did_you_mean
from trafo.tokenizer.kernels.unicode_classes import unassigned_ranges

THEN = "(?#then)"
"""what stands between two expressions that split in turn, a comment to `regex`"""

_NEVER_ASSIGNED = 0xFFFF  # Unicode guarantees it

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# tiktoken now spells cl100k with `\s++$` before `\s*[\r\n]`. That leaves white space at the very
# end of a text in one word, but no token of cl100k spans the cut made here, so the ids are equal,
# and where a text ends need not be known.
_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# A word is capitals then small letters; letters without case and marks count as both.
_GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_REGEX_OF_NAME = {
    "gpt2": _GPT2,
    "gpt4": _GPT4,
    "gpt4o": _GPT4O,
    "llama3": _GPT4,  # Llama 3 took cl100k's pattern over unchanged
    "whitespace": r"\s+|\S+",
    "none": r"(?s:.+)",
}

PATTERN_NAMES = tuple(_REGEX_OF_NAME)

# Marks, and parts of composed characters, that Unicode has had since 10.0 (and between them some
# characters that normalization never changes).
_SINCE_UNICODE_10 = re.compile(
    "([\u05c8-\u05c9\u07fd\u0897-\u08d3\u09fe\u0c3c\u0d3b-\u0d3c\u0eba\u1715\u1abf-\u1af0"
    "\u1df6-\u1dfa\ua82c\U000105c9-\U000105e4\U00010d24-\U00010f85\U00011070\U0001133b"
    "\U00011382-\U000113d0\U0001145e\U00011839-\U00011a99\U00011d42-\U0001612f"
    "\U00016d63-\U00016ff1\U0001d127-\U0001d128\U0001d250-\U0001d281\U0001e08f-\U0001e6f5])"
)

# The same patterns as other files spell them. Each splits every text as ours does.
OTHER_SPELLINGS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    r"(?:'s|'t|'re|'ve|'m|'ll|'d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+": "gpt4",
}
# Of two names for the same expression, the first counts.
_NAME_OF_REGEX = {expression: name for name, expression in reversed(_REGEX_OF_NAME.items())}
_NAME_OF_REGEX |= OTHER_SPELLINGS


def pattern_regex(name_or_regex: str) -> str:
    """Return the regular expression of a named pattern, or a regular expression unchanged.

    A plain word such as `gpt3` is refused as a misspelt name. As an expression it would match only
    itself.
    """
    if THEN in name_or_regex:
        return THEN.join(map(pattern_regex, name_or_regex.split(THEN)))
    if name_or_regex in _REGEX_OF_NAME:
        return _REGEX_OF_NAME[name_or_regex]
    if not name_or_regex or regex.fullmatch(r"[\w-]+", name_or_regex):
        names = f"use one of {', '.join(PATTERN_NAMES)}, or a regular expression"
        raise InputError(
            f"there is no split pattern named {name_or_regex!r}",
            hint=did_you_mean(name_or_regex, PATTERN_NAMES, names),
        )
    if regex.search(r"[\ud800-\udfff]", name_or_regex):
        what = f"the split pattern {name_or_regex!r} has a lone surrogate, not a character"
        raise InputError(what)
    return name_or_regex


def pattern_name(name_or_regex: str) -> str:
    """Return the name of a pattern given by its regular expression, if it has one."""
    if THEN in name_or_regex:
        return THEN.join(map(pattern_name, name_or_regex.split(THEN)))
    return _NAME_OF_REGEX.get(name_or_regex, name_or_regex)


def normalize_nfc(text: str) -> str:
    """Bring a text into normalization form NFC of Unicode 9.0, which is what `tokenizers` has.

    To a newer version of Python, some characters are marks, or parts of others, that were not
    assigned then. They are left as they are, and what is between them is normalized.
    """
    if text.isascii():
        return text
    return "".join(normalize("NFC", part) for part in _SINCE_UNICODE_10.split(text))


@lru_cache(maxsize=32)
def compile_pattern(name_or_regex: str) -> tuple[Any, ...]:
    """Compile an expression (to a `regex.Pattern`), or all of them if they split in turn."""
    expression = pattern_regex(name_or_regex)
    try:
        return tuple(map(regex.compile, expression.split(THEN)))
    except regex.error as error:
        raise InputError(
            f"the split pattern is not a regular expression: {error.msg} at position {error.pos}",
            where=repr(expression),
            hint="it must be one that the `regex` package can compile",
        ) from error


def split_words(text: str, pattern: str = "gpt2") -> list[str]:
    """Cut a text into words that, joined, give the text again.

    The named patterns match every character. A user's expression may not: what it leaves out
    between two matches becomes a word of its own, so that no text is lost. Words are whole matches,
    whatever groups the expression captures.
    """
    assigned = text if text.isascii() else text.translate(_UNICODE_16)
    words = [assigned]
    for expression in compile_pattern(pattern):
        words = [part for word in words for part in _split(word, expression)]
    if assigned is text:
        return words
    return [text[start:end] for start, end in pairwise(accumulate(map(len, words), initial=0))]


def _split(text: str, expression: Any) -> Iterator[str]:
    covered = 0
    for match in expression.finditer(text):
        start, end = match.span()
        if start == end:  # an empty match covers nothing
            continue
        if start > covered:
            yield text[covered:start]
        yield text[start:end]
        covered = end
    if covered < len(text):
        yield text[covered:]


class _Unicode16(dict[int, int]):
    """For `str.translate`: each character as Unicode 16.0 knows it, filled on demand."""

    def __missing__(self, code: int) -> int:
        is_unassigned = bisect_right(_unassigned_borders(), code) % 2
        self[code] = character = _NEVER_ASSIGNED if is_unassigned else code
        return character


_UNICODE_16 = _Unicode16({0x295: 0x255})  # a small letter then, a letter without case since 17.0


@cache
def _unassigned_borders() -> list[int]:
    borders: list[int] = unassigned_ranges().ravel().tolist()
    return borders
