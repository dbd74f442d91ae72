"""One request to the engine: a prompt, how to sample, when to stop.

The engine answers with pieces: what each step adds to each of the request's samples.
"""

from __future__ import annotations

import codecs
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trafo.errors import InputError
from trafo.generate.config import GenerationConfig
from trafo.generate.sampling import Token
from trafo.models import CausalLM
from trafo.tokenizer import Tokenizer

FinishReason = Literal["stop", "length", "end"]


@dataclass(frozen=True)
class Piece:
    """What one step adds to a row: text, token (None if it ended the row), reason to finish."""

    row: int
    text: str
    token: Token | None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt and how to continue it. Compared by identity."""

    prompt: Sequence[int]
    config: GenerationConfig
    ends: frozenset[int] = frozenset()
    """ids that end a completion"""
    vocab: Mapping[int, bytes] = field(default_factory=dict)
    """bytes of the ids; those that are not shown have none"""

    @property
    def num_logprobs(self) -> int:
        """The most log-probabilities that its tokens have, alternatives included."""
        config = self.config
        each = 0 if config.logprobs is None else 1 + config.logprobs
        return config.num_samples * config.max_new_tokens * each

    @classmethod
    def of(cls, prompt: Sequence[int], config: GenerationConfig, tokenizer: Tokenizer) -> Request:
        """With the end tokens and the vocabulary of a tokenizer; chat markers are not shown."""
        if config.ignore_end:
            return cls(prompt, config, frozenset(), tokenizer.vocab)
        hidden = dict.fromkeys(tokenizer.hidden, b"")
        vocab = ChainMap(hidden, tokenizer.vocab)
        return cls(prompt, config, _end_ids(tokenizer, config), vocab)


def _end_ids(tokenizer: Tokenizer, config: GenerationConfig) -> frozenset[int]:
    """The ids that end a completion: the model's own end tokens, or the config's."""
    if config.end_token is None:
        return tokenizer.ends
    if config.end_token not in tokenizer.special_tokens:
        known = ", ".join(tokenizer.special_tokens) or "none"
        raise InputError(
            f"the tokenizer has no special token {config.end_token!r}",
            hint=f"its special tokens: {known}",
        )
    return frozenset([tokenizer.special_tokens[config.end_token]])


def vocab_size(model: CausalLM) -> int:
    """Vocabulary size of the model: rows of its output head."""
    return model.head_weight.shape[0]


def check_prompt(model: CausalLM, ids: Sequence[int]) -> None:
    """Refuse a prompt without ids, or with ids that the model does not know."""
    if not ids:
        raise InputError("a prompt has no ids", hint="begin with the id of <|endoftext|>")
    size = vocab_size(model)
    strange = next((i for i in ids if not 0 <= i < size), None)
    if strange is not None:
        raise InputError(
            f"a prompt has the id {strange}, the model knows ids from 0 to {size - 1:,}",
            hint="encode it with the model's own tokenizer",
        )


def next_piece(
    row: int, token: Token, text: TextStream, ends: frozenset[int], is_last: bool
) -> Piece:
    """What a sampled token adds to a row, and whether it ends it."""
    if token.id in ends:
        return Piece(row, text.finish(), None, "end")
    shown = text.feed(token.id)
    if text.stopped:
        return Piece(row, shown, token, "stop")
    if is_last:
        return Piece(row, shown + text.finish(), token, "length")
    return Piece(row, shown, token)


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


def window_start(num_ids: int, context_length: int, kept_share: float) -> int:
    """Where the window of a text of `num_ids` ids begins, if it is longer than the context.

    The text grows until the context of C tokens is full. The next token then starts a new window
    with the newest K tokens, itself included, which grows until it is full again, and so on; K is
    this share of C, at least 1. So a window begins at a multiple of C + 1 - K, and where it begins
    depends only on the number of ids: continuing a text gives the same as not stopping. Sliding by
    one token each time (K = C) sees the most context, but every step then costs a full forward
    pass: positions are counted from the window's start, so no key in the cache would stay valid.
    """
    kept = min(context_length, max(1, int(context_length * kept_share)))
    overhang = max(0, num_ids - context_length)
    step = context_length + 1 - kept
    return -(-overhang // step) * step
