"""A model's own tokenizer: it also knows which tokens begin and end the model's texts. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trafo.tokenizer.formats.spec import END_OF_TEXT, TokenizerSpec
from trafo.tokenizer.reference import split_specials
from trafo.tokenizer.tokenizer import SpecialPolicy, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Markers:
    """Begin, end and control tokens of a model."""

    begin: int | None = None
    """put before a text, if not None"""
    ends: frozenset[int] = frozenset()
    """end a completion"""
    hidden: frozenset[int] = frozenset()
    """not printed"""

    @classmethod
    def usual(cls, special_tokens: Mapping[str, int]) -> Markers:
        """The default: <|endoftext|> ends a text."""
        ends = {i for token, i in special_tokens.items() if token == END_OF_TEXT}
        return cls(None, frozenset(ends), frozenset(special_tokens.values()))


class ModelTokenizer(Tokenizer):
    """A tokenizer with its model's begin and end tokens; `trafo.load` returns it."""

    markers: Markers
    chat_template: str | None
    """how a chat is written, in Jinja, if the model's files say so"""
    chat_tokens: Mapping[str, str]
    """what templates call `bos_token`, `eos_token` and so on"""

    @classmethod
    def of(
        cls,
        parts: TokenizerSpec,
        markers: Markers | None = None,
        chat_template: str | None = None,
        chat_tokens: Mapping[str, str] | None = None,
    ) -> ModelTokenizer:
        """From what a file holds."""
        tokenizer = cls.from_spec(parts)
        assert isinstance(tokenizer, cls)
        tokenizer.markers = markers or Markers.usual(parts.special_tokens)
        tokenizer.chat_template = chat_template
        tokenizer.chat_tokens = chat_tokens or {}
        return tokenizer

    def encode(self, text: str, special: SpecialPolicy = "allow") -> list[int]:
        """The ids of a text; `ignore` is for control tokens: others that are added are text too."""
        if special != "ignore" or not self._added:
            return super().encode(text, special)
        ids: list[int] = []
        for span in split_specials(text, self._added):
            if span in self._added:
                ids.append(self.special_tokens[span])
            else:
                ids += super().encode(span, special)
        return ids

    @cached_property
    def _added(self) -> list[str]:
        """The special tokens that are not hidden, which a text may hold."""
        return [token for token, i in self.special_tokens.items() if i not in self.markers.hidden]

    def encode_tensor(self, text: str) -> Tensor:
        """The ids of a text (1, seq) as the model takes them, after the begin token if it has one.

        Special tokens in the text become their ids, as by `encode`.

        model(tokenizer.encode_tensor("Hello")) gives logits.
        """
        import torch

        begin = [] if self.markers.begin is None else [self.markers.begin]
        return torch.tensor([begin + self.encode(text)], dtype=torch.long)


def markers_of(tokenizer: Tokenizer) -> Markers:
    """The markers of any tokenizer."""
    if isinstance(tokenizer, ModelTokenizer):
        return tokenizer.markers
    return Markers.usual(tokenizer.special_tokens)
