"""The ids of the first short texts, in plain Python, before the kernels are loaded.

numba takes a second to import, and the kernels take ten to compile on a new machine. A sentence is
encoded long before that, by the algorithm of `reference.py` on ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from trafo.errors import InputError
from trafo.tokenizer.formats.spec import TokenizerSpec, merges_as_ids
from trafo.tokenizer.patterns import compile_pattern, normalize_nfc, split_words
from trafo.tokenizer.reference import split_specials

SpecialPolicy = Literal["allow", "ignore", "refuse"]

_LONGEST_TEXT = 1_000  # characters
_MOST_TEXT = 10_000  # characters in total: for more, loading the kernels pays
_MOST_SPECIALS = 100


class PurePythonEncoder:
    """Encodes the first few short texts, while `encode` gives None for others.

    A vocabulary that lacks what a merge needs, and a wrong pattern, are refused here.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        compile_pattern(spec.pattern)
        self._spec = spec
        self._ids = spec.ordinary_tokens()
        rows = merges_as_ids(spec, self._ids)
        # Of two equal pairs the first counts.
        self._merge_of_pair = {
            (left, right): (rank, merged)
            for rank, (left, right, merged) in reversed(list(enumerate(rows)))
        }
        has_all_bytes = all(bytes([byte]) in self._ids for byte in range(256))
        is_small = len(spec.special_tokens) <= _MOST_SPECIALS
        self._room = _MOST_TEXT if has_all_bytes and is_small else 0

    def encode(self, text: str, special: SpecialPolicy) -> list[int] | None:
        """The ids of a text, or None if it is too long, or all so far together are."""
        length = len(utf8(text))
        if length > min(_LONGEST_TEXT, self._room):
            return None
        self._room -= length
        check_special_policy(special)
        ids: list[int] = []
        for span, special_id in self._split(text, special != "ignore"):
            if special_id is None:
                for word in split_words(span, self._spec.pattern):
                    ids += self._encode_word(word.encode())
            elif special == "refuse":
                raise special_token_error(span)
            else:
                ids.append(special_id)
        return ids

    def _split(self, text: str, with_specials: bool) -> Iterator[tuple[str, int | None]]:
        """The special tokens of a text with their ids, and the text between them, normalized."""
        spec = self._spec
        specials = spec.special_tokens if with_specials else {}
        second = [token for token in specials if token in spec.normalized_tokens]
        first = [token for token in specials if token not in spec.normalized_tokens]
        for span in split_specials(text, first):
            if span in first:
                yield span, specials[span]
                continue
            for part in split_specials(normalize_nfc(span) if spec.nfc else span, second):
                yield part, specials[part] if part in second else None

    def _encode_word(self, word: bytes) -> list[int]:
        if self._spec.ignore_merges and word in self._ids:
            return [self._ids[word]]
        ids = [self._ids[bytes([byte])] for byte in word]
        while len(ids) > 1:
            never = len(self._merge_of_pair), 0
            found = [self._merge_of_pair.get(pair, never) for pair in pairwise(ids)]
            best = min(found)
            if best == never:
                break
            at = found.index(best)
            ids[at : at + 2] = [best[1]]
        return ids


def check_special_policy(special: str) -> None:
    """Refuse a word that is not a `SpecialPolicy`."""
    if special not in ("allow", "ignore", "refuse"):
        raise InputError(
            f"special={special!r} is not known", hint="use 'allow', 'ignore' or 'refuse'"
        )


def special_token_error(token: str) -> InputError:
    """The error for a special token in a text that must have none."""
    return InputError(
        f"the text contains the special token {token!r}",
        hint="special='ignore' takes it as plain text, special='allow' as the token",
    )


def utf8(text: str) -> bytes:
    """Encode a text as UTF-8, and refuse a lone surrogate, which has no bytes."""
    try:
        return text.encode()
    except AttributeError:
        raise InputError(f"a text is needed, not {type(text).__name__}") from None
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}: not a character",
            where=f"character {error.start:,}",
            hint="read the text with the right encoding, or replace it by U+FFFD",
        ) from None
