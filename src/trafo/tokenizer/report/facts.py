"""The numbers of a report; the command line renders them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trafo.tokenizer.report.readable import readable


@dataclass(frozen=True, kw_only=True)
class Totals:
    """A text, or some of it, counted in four ways. Words are what white space separates."""

    num_bytes: int = 0
    num_characters: int = 0
    num_words: int = 0
    num_tokens: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            num_bytes=self.num_bytes + other.num_bytes,
            num_characters=self.num_characters + other.num_characters,
            num_words=self.num_words + other.num_words,
            num_tokens=self.num_tokens + other.num_tokens,
        )

    @property
    def bytes_per_token(self) -> float:
        """How well the text is compressed; comparable between any two tokenizers."""
        return _ratio(self.num_bytes, self.num_tokens)

    @property
    def characters_per_token(self) -> float:
        """As bytes per token, but fair to scripts whose characters take several bytes."""
        return _ratio(self.num_characters, self.num_tokens)

    @property
    def tokens_per_word(self) -> float:
        """Fertility: tokens per word, the white space around it included."""
        return _ratio(self.num_tokens, self.num_words)


@dataclass(frozen=True)
class Share:
    """The bytes and tokens of one script."""

    num_bytes: int
    num_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """As for the whole text."""
        return _ratio(self.num_bytes, self.num_tokens)


@dataclass(frozen=True)
class Token:
    """A token, how often the text holds it, and why it is listed, if that needs saying."""

    id: int
    content: bytes
    count: int
    why: str = ""

    def __str__(self) -> str:
        return readable(self.content)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a tokenizer does to a text. Tokens listed as odd come in order of their ids."""

    tokenizer: str
    hash: str
    pattern: str
    num_tokens: int
    num_special_tokens: int
    files: dict[str, Totals]
    scripts: dict[str, Share]
    seconds: float  # of encoding alone, on one core
    longest: list[Token]
    most_frequent: list[Token]
    never_used: list[Token]
    unreachable: list[Token]
    mojibake: list[Token]
    boilerplate: list[Token]

    @property
    def total(self) -> Totals:
        """All files together."""
        return sum(self.files.values(), Totals())

    @property
    def bytes_per_second(self) -> float:
        """How fast one core encodes this text."""
        return _ratio(self.total.num_bytes, self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the same, with the ratios filled in and tokens as people read them."""
        plain: dict[str, Any] = {
            key: [_token_dict(token) for token in value] if isinstance(value, list) else value
            for key, value in vars(self).items()
        }
        return {
            **plain,
            "bytes_per_second": self.bytes_per_second,
            "total": _totals_dict(self.total),
            "files": {name: _totals_dict(totals) for name, totals in self.files.items()},
            "scripts": {
                name: {**asdict(share), "bytes_per_token": share.bytes_per_token}
                for name, share in self.scripts.items()
            },
        }


def _ratio(amount: float, unit: float) -> float:
    return amount / unit if unit else 0.0


def _totals_dict(totals: Totals) -> dict[str, float]:
    return {
        **asdict(totals),
        "bytes_per_token": totals.bytes_per_token,
        "characters_per_token": totals.characters_per_token,
        "tokens_per_word": totals.tokens_per_word,
    }


def _token_dict(token: Token) -> dict[str, Any]:
    facts = {"id": token.id, "token": str(token), "num_bytes": len(token.content)}
    return {**facts, "count": token.count} | ({"why": token.why} if token.why else {})
