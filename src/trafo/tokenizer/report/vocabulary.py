"""The tokens of a vocabulary that are worth a look, given how often each one was used."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.report.facts import Token
from trafo.tokenizer.report.oddities import is_boilerplate, is_mojibake
from trafo.tokenizer.report.unreachable import unreachable_tokens


class Vocabulary:
    """A vocabulary with the count of each id. Special tokens are listed only if frequent."""

    def __init__(self, spec: TokenizerSpec, counts: NDArray[np.int64]) -> None:
        self._spec = spec
        self._counts = counts
        special_ids = set(spec.special_tokens.values())
        self._ordinary = sorted(set(spec.vocab) - special_ids)

    def longest(self, number: int) -> list[Token]:
        """By bytes; among equals those with the lower id, which were learned first."""
        by_length = sorted(self._ordinary, key=lambda i: (-len(self._spec.vocab[i]), i))
        return self._tokens(by_length[:number])

    def most_frequent(self, number: int) -> list[Token]:
        """By their count in the text."""
        ids = np.argsort(-self._counts, kind="stable")[:number].tolist()
        return self._tokens(i for i in ids if self._counts[i])

    def never_used(self) -> list[Token]:
        """Those that the text does not hold."""
        return self._tokens(i for i in self._ordinary if not self._counts[i])

    def unreachable(self) -> list[Token]:
        """Those that no text can hold, see `unreachable.py`."""
        reasons = unreachable_tokens(self._spec)
        return [
            Token(i, self._spec.vocab[i], int(self._counts[i]), why) for i, why in reasons.items()
        ]

    def mojibake(self) -> list[Token]:
        """See `oddities.py`."""
        return self._that(is_mojibake)

    def boilerplate(self) -> list[Token]:
        """See `oddities.py`."""
        return self._that(is_boilerplate)

    def _that(self, is_odd: Callable[[bytes], bool]) -> list[Token]:
        return self._tokens(i for i in self._ordinary if is_odd(self._spec.vocab[i]))

    def _tokens(self, ids: Iterable[int]) -> list[Token]:
        return [Token(i, self._spec.vocab[i], int(self._counts[i])) for i in ids]
