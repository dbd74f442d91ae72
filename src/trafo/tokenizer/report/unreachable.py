"""Tokens that no text can ever become: they waste a slot in the vocabulary and in the model.

In: a tokenizer's spec. Out: the ids, each with the reason. A token is unreachable if

 1. its bytes occur in no valid UTF-8: BPE starts from all 256 bytes, of which UTF-8 never uses 13;
 2. or BPE on its bytes ends with several tokens. Then it never appears inside a longer word
    either: where a token is in a result, no merge crossed its borders, so the merges inside
    were those that happen to it alone;
 3. or the pattern cuts through it, alone and between all sorts of neighbours.

A tokenizer with `whole_words` takes a word that is a token as that token; then 2 does not apply to
a token that the pattern leaves whole on its own.
"""

import re
from itertools import accumulate, product

import numpy as np

from trafo.tokenizer.encoding import Merges
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.kernels.bpe import NO_ID
from trafo.tokenizer.patterns import compile_pattern, split_words

# The end of a character, whole characters (the syntax of RFC 3629), the beginning of one.
_PART_OF_UTF8 = re.compile(
    rb"""
    [\x80-\xbf]{0,3}
    (?: [\x00-\x7f] | [\xc2-\xdf][\x80-\xbf]
      | \xe0[\xa0-\xbf][\x80-\xbf] | \xed[\x80-\x9f][\x80-\xbf]
      | [\xe1-\xec\xee\xef][\x80-\xbf]{2}
      | \xf0[\x90-\xbf][\x80-\xbf]{2} | \xf4[\x80-\x8f][\x80-\xbf]{2}
      | [\xf1-\xf3][\x80-\xbf]{3} )*
    (?: [\xc2-\xf4] | \xe0[\xa0-\xbf] | \xed[\x80-\x9f] | [\xe1-\xec\xee\xef][\x80-\xbf]
      | \xf0[\x90-\xbf][\x80-\xbf]? | \xf4[\x80-\x8f][\x80-\xbf]?
      | [\xf1-\xf3][\x80-\xbf]{1,2} )?
    """,
    re.VERBOSE,
)

# Each class of characters that the named patterns tell apart, and what makes `'s`, `'ll` and `'re`.
_NEIGHBOURS = ("", "a", "A", "s", "l", "e", "1", "!", "'", " ", "\n")


def unreachable_tokens(spec: TokenizerSpec) -> dict[int, str]:
    """The reason for each unreachable id; special tokens are always reachable."""
    tokens = spec.ordinary_tokens()
    made = _made_by_merges(list(tokens), Merges.from_spec(spec))
    reasons = {i: _reason(token, token in made, spec) for token, i in tokens.items()}
    return {i: reason for i, reason in sorted(reasons.items()) if reason}


def _reason(token: bytes, is_made: bool, spec: TokenizerSpec) -> str | None:
    if not occurs_in_utf8(token):
        return "not UTF-8"
    text = _text(token)
    if spec.whole_words and text is not None and split_words(text, spec.pattern) == [text]:
        return None
    if not is_made:
        return "not made by the merges"
    if text is not None and not _fits_into_word(text, spec.pattern):
        return "cut by the pattern"
    return None


def occurs_in_utf8(token: bytes) -> bool:
    """Whether the bytes can be a part of valid UTF-8; they may begin and end inside a character."""
    return _PART_OF_UTF8.fullmatch(token) is not None


def _text(token: bytes) -> str | None:
    """The token as text; None if it holds a part of a character, which no pattern splits."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def _made_by_merges(tokens: list[bytes], merges: Merges) -> set[bytes]:
    """The tokens that BPE on their own bytes ends with."""
    known = {byte for byte in range(256) if merges.byte_ids[byte] != NO_ID}
    tokens = [token for token in tokens if known.issuperset(token)]
    text = np.frombuffer(b"".join(tokens), np.uint8)
    ends = np.cumsum([len(token) for token in tokens], dtype=np.int64)
    numbers = np.diff(merges.encode_each(text, ends)[1], prepend=0).tolist()
    return {token for token, number in zip(tokens, numbers, strict=True) if number == 1}


def _fits_into_word(text: str, pattern: str) -> bool:
    """Whether the pattern ever leaves the text whole."""
    if all(step.fullmatch(text) for step in compile_pattern(pattern)):  # the usual case, at once
        return True
    contexts = product(_NEIGHBOURS, _NEIGHBOURS)
    return any(_is_left_whole(before, text, after, pattern) for before, after in contexts)


def _is_left_whole(before: str, text: str, after: str, pattern: str) -> bool:
    start, stop = len(before), len(before + text)
    ends = accumulate(map(len, split_words(before + text + after, pattern)))
    return not any(start < end < stop for end in ends)
