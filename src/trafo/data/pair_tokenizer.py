"""Sentences of two languages <-> ids, by one tokenizer for both or by one for each.

A sentence is encoded as if a space preceded it, so that its first word has the same tokens as the
word inside a sentence, and ends with the end token. The same token starts a target. Padding is the
id of the byte 0, which no text has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from trafo.errors import FormatError, require, require_lists
from trafo.runtime.atomic import atomic_write
from trafo.runtime.json_text import parse_json
from trafo.tokenizer import END_OF_TEXT, Tokenizer, train_tokenizer
from trafo.tokenizer.formats.load import check_folder

ABOUT = "pair.json"
LEAD = " "
"""encoded before each sentence; no part of its text"""
_SOURCE, _TARGET = "source", "target"


@dataclass(frozen=True)
class Sentences:
    """Ids of many sentences, one after the other in a single array."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    """where each sentence begins, and where the last one ends"""

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Sentences:
        """From lists of ids."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter((i for sentence in sentences for i in sentence), np.int32, lengths.sum())
        return cls(ids, np.concatenate([[0], lengths.cumsum()]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def take(self, rows: NDArray[np.int64]) -> Sentences:
        """Some of them, in order."""
        if len(rows) == len(self):
            return self
        return Sentences.of([self[row].tolist() for row in rows])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each sentence."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class PairTokenizer:
    """Encodes source and target sentences, decodes targets."""

    source: Tokenizer
    target: Tokenizer
    """the same object, if both languages share a vocabulary"""
    lowercase: bool = False

    @property
    def is_joint(self) -> bool:
        """Whether both languages share a vocabulary."""
        return self.source is self.target

    @property
    def end(self) -> int:
        """The id that ends a target and starts it."""
        return end_id(self.target)

    def encode_source(self, sentences: Sequence[str]) -> Sentences:
        """Each sentence, with the end token after it."""
        return self._encode(self.source, sentences)

    def encode_target(self, sentences: Sequence[str]) -> Sentences:
        """Each sentence, with the end token after it."""
        return self._encode(self.target, sentences)

    def decode_target(self, ids: Sequence[int]) -> str:
        """Decode a sentence to one line, without the end token."""
        text = self.target.decode(i for i in ids if i != self.end)
        return " ".join(text.split())

    def save(self, folder: Path) -> None:
        """Into the folder of a run."""
        if self.is_joint:
            self.source.save(folder)
        else:
            self.source.save(folder / _SOURCE)
            self.target.save(folder / _TARGET)
        with atomic_write(folder / ABOUT, "w") as file:
            json.dump({"joint": self.is_joint, "lowercase": self.lowercase}, file)

    @classmethod
    def load(cls, folder: Path) -> PairTokenizer:
        """What `save` wrote."""
        try:
            about = parse_json((folder / ABOUT).read_text(encoding="utf-8"))
            is_joint, lowercase = bool(about["joint"]), bool(about["lowercase"])
        except (OSError, ValueError, KeyError, TypeError):
            raise FormatError(
                "not the tokenizer of a translation model", where=str(folder)
            ) from None
        if is_joint:
            both = Tokenizer.load(folder)
            return cls(both, both, lowercase)
        return cls(Tokenizer.load(folder / _SOURCE), Tokenizer.load(folder / _TARGET), lowercase)

    def check(self, folder: Path) -> None:
        """Raise unless this is what all files in the folder hold."""
        saved = self.load(folder)
        if (saved.is_joint, saved.lowercase) != (self.is_joint, self.lowercase):
            raise FormatError("not this tokenizer", where=str(folder / ABOUT))
        for name, tokenizer in ((_SOURCE, self.source), (_TARGET, self.target)):
            check_folder(folder if self.is_joint else folder / name, tokenizer.spec)

    def _encode(self, tokenizer: Tokenizer, sentences: Sequence[str]) -> Sentences:
        require_lists(sentences=sentences)
        end = end_id(tokenizer)
        texts = [prepared(sentence, lowercase=self.lowercase) for sentence in sentences]
        found = tokenizer.encode_batch(texts, special="ignore")
        return Sentences.of([[*ids, end] for ids in found])


def prepared(sentence: str, *, lowercase: bool) -> str:
    """The text that is encoded for a sentence."""
    return LEAD + (sentence.lower() if lowercase else sentence).strip()


def end_id(tokenizer: Tokenizer) -> int:
    """The id that ends a sentence and starts a target."""
    return tokenizer.special_tokens[END_OF_TEXT]


def check_tokenizer(tokenizer: Tokenizer, padding_id: int) -> None:
    """Refuse one that lacks the end token, or has text where padding should be."""
    has_end = END_OF_TEXT in tokenizer.special_tokens
    require(has_end, f"the tokenizer has no special token {END_OF_TEXT}", "train another one")
    require(
        tokenizer.vocab.get(padding_id) == b"\0",
        f"padding_id is {padding_id}, which is a text token of the tokenizer",
        "set it to the id of the byte 0",
    )


def train_on_sentences(
    texts: Sequence[Sequence[str]], vocab_size: int, *, pattern: str, lowercase: bool
) -> Tokenizer:
    """A tokenizer of all these sentences."""
    with TemporaryDirectory(prefix="trafo-pairs-") as folder:
        path = Path(folder, "sentences.txt")
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for sentences in texts:
                for sentence in sentences:
                    file.write(prepared(sentence, lowercase=lowercase) + "\n")
        training = train_tokenizer(str(path), vocab_size, [END_OF_TEXT], pattern=pattern)
    return Tokenizer.from_spec(training.spec)
