"""Tokens that no text can ever become: a slot in the vocabulary, and in the model, for nothing.

In: a tokenizer's spec. Out: the ids, each with the reason. A token is unreachable if

 1. its bytes occur in no valid UTF-8: BPE starts from all 256 bytes, of which UTF-8 never uses 13;
 2. or BPE on its bytes ends with several tokens. Then it never appears inside a longer word
    either: where a token is in a result, no merge crossed its borders, so the merges inside
    were those that happen to it alone;
 3. or the pattern cuts through it, alone and between all sorts of neighbours.

A tokenizer with `whole_words` takes a word that is a token as it is; then 2 does not count for a
token that the pattern leaves whole when it stands alone.
"""

import re
from collections.abc import Iterator
from itertools import pairwise, product

from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.patterns import compile_pattern, split_words

Pair = tuple[bytes, bytes]

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
    rank_of_pair = {pair: rank for rank, pair in reversed(list(enumerate(spec.merges)))}
    reasons: dict[int, str] = {}
    for token, token_id in spec.ordinary_tokens().items():
        reason = _reason(token, rank_of_pair, spec)
        if reason:
            reasons[token_id] = reason
    return dict(sorted(reasons.items()))


def _reason(token: bytes, rank_of_pair: dict[Pair, int], spec: TokenizerSpec) -> str | None:
    if not occurs_in_utf8(token):
        return "not UTF-8"
    text = _text(token)
    if spec.whole_words and text is not None and split_words(text, spec.pattern) == [text]:
        return None
    if not _merges_into_one(token, rank_of_pair):
        return "not made by the merges"
    if text is not None and not _fits_into_word(text, spec.pattern):
        return "cut by the pattern"
    return None


def occurs_in_utf8(token: bytes) -> bool:
    """Whether the bytes can be a part of valid UTF-8; they may begin and end inside a character."""
    return _PART_OF_UTF8.fullmatch(token) is not None


def _text(token: bytes) -> str | None:
    """The token as text; nothing if it holds a part of a character, which no pattern splits."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def _merges_into_one(token: bytes, rank_of_pair: dict[Pair, int]) -> bool:
    symbols = [token[i : i + 1] for i in range(len(token))]
    while len(symbols) > 1:
        ranked = [
            (rank_of_pair[pair], i)
            for i, pair in enumerate(pairwise(symbols))
            if pair in rank_of_pair
        ]
        if not ranked:
            return False
        _, i = min(ranked)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    return True


def _fits_into_word(text: str, pattern: str) -> bool:
    """Whether the pattern ever leaves the text whole."""
    if compile_pattern(pattern).fullmatch(text):  # the usual case, at once
        return True
    return any(_is_left_whole(before, text, after, pattern) for before, after in _contexts())


def _is_left_whole(before: str, text: str, after: str, pattern: str) -> bool:
    start, stop = len(before), len(before + text)
    return not any(start < end < stop for end in _word_ends(before + text + after, pattern))


def _word_ends(text: str, pattern: str) -> Iterator[int]:
    end = 0
    for word in split_words(text, pattern):
        end += len(word)
        yield end


def _contexts() -> Iterator[tuple[str, ...]]:
    return product(_NEIGHBOURS, _NEIGHBOURS)
