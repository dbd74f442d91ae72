"""Tokenizer: the public face. Text in, ids out, and back.

    tokenizer = Tokenizer.load("my-tokenizer")
    ids = tokenizer.encode("Hello world")
    assert tokenizer.decode(ids) == "Hello world"

A tokenizer may be used by many threads at once. The first short texts are encoded in plain Python;
then the kernels are loaded, and compiled the first time on a machine. `prepare` does that at once:
from then on, encoding needs little more memory than its result.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from trafo.errors import InputError, check_types, require_lists
from trafo.tokenizer.formats.gpt2 import read_gpt2
from trafo.tokenizer.formats.load import load_any, save_folder
from trafo.tokenizer.formats.spec import (
    END_OF_TEXT,
    TokenizerSpec,
    hash_spec,
    with_special_tokens,
)
from trafo.tokenizer.pure_python import PurePythonEncoder, SpecialPolicy
from trafo.tokenizer.reference import split_specials

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

    from trafo.tokenizer.encoding import CompiledEncoder, Encoder
    from trafo.tokenizer.kernels.arrays import Ids
    from trafo.tokenizer.words import SpecialFinder

__all__ = ["SpecialPolicy", "Tokenizer"]

_LONG = 1 << 13  # characters of a text that is worth dividing among all cores


class Tokenizer:
    """A byte-level BPE tokenizer.

    Special tokens that the vocabulary lacks are appended to it. What happens to special tokens
    inside a text is the caller's choice, by the argument `special`: `allow`, the default of every
    method here, encodes them as their ids; `ignore` encodes them as ordinary text; `refuse` raises
    InputError. Choose `ignore` or `refuse` for text from strangers, as the service and the prompts
    of the command line do. All added tokens of a `tokenizer.json` count as special here.
    """

    @check_types
    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str = "gpt2",
        ignore_merges: bool = False,
    ) -> None:
        spec = TokenizerSpec(dict(vocab), list(merges), {}, pattern, ignore_merges)
        self._build(with_special_tokens(spec, special_tokens or ()))

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Tokenizer:
        """Make a tokenizer from what a file or a training run gives."""
        tokenizer = cls.__new__(cls)
        tokenizer._build(spec)
        return tokenizer

    @classmethod
    def from_files(
        cls,
        vocab_path: str | Path,
        merges_path: str | Path,
        special_tokens: Iterable[str] | None = None,
    ) -> Tokenizer:
        """From GPT-2's `vocab.json` and `merges.txt`."""
        spec = read_gpt2(Path(vocab_path), Path(merges_path))
        return cls.from_spec(with_special_tokens(spec, special_tokens or ()))

    @classmethod
    def load(
        cls,
        path: str | Path,
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str | None = None,
    ) -> Tokenizer:
        """From a folder or file in any format that trafo reads.

        `pattern` is for files that do not name theirs, such as tiktoken's rank files:
        `Tokenizer.load("tokenizer.model", pattern="llama3")`.
        """
        return cls.from_spec(load_any(path, pattern=pattern, special_tokens=special_tokens))

    def save(self, folder: str | Path) -> None:
        """Write trafo's folder, which Hugging Face's `tokenizers` reads too."""
        save_folder(self.spec, folder)

    def _build(self, spec: TokenizerSpec) -> None:
        self.spec = spec
        self._vocab_size = max(spec.vocab, default=-1) + 1
        self._pure_python: PurePythonEncoder | None = PurePythonEncoder(spec)
        self._compiled_encoder: CompiledEncoder | None = None
        self._lock = Lock()

    def prepare(self) -> Tokenizer:
        """Load the kernels and make the buffers now, not on first use, and return this."""
        _ = self._compiled
        return self

    @property
    def _compiled(self) -> CompiledEncoder:
        with self._lock:
            if self._compiled_encoder is None:
                from trafo.tokenizer.encoding import CompiledEncoder

                self._compiled_encoder = CompiledEncoder(self.spec)
                self._pure_python = None
        return self._compiled_encoder

    def encoder(self) -> AbstractContextManager[Encoder]:
        """Lend an encoder that no other thread uses meanwhile, and keep its cache."""
        return self._compiled.borrow()

    def special_finder(self, special: SpecialPolicy) -> SpecialFinder:
        """The special tokens to look for in a text."""
        return self._compiled.special_finder(special)

    # What it consists of

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of each id."""
        return self.spec.vocab

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in order of rank."""
        return self.spec.merges

    @property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special token."""
        return self.spec.special_tokens

    @property
    def pattern(self) -> str:
        """The split pattern: a name or a regular expression."""
        return self.spec.pattern

    @cached_property
    def hash(self) -> str:
        """Identifies all that decides which ids a text becomes."""
        return hash_spec(self.spec)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id: what an embedding needs."""
        return self._vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer({len(self.vocab):,} tokens, pattern={self.pattern!r}, {self.hash[:12]})"

    @property
    def begin(self) -> int | None:
        """The id that a model expects before a text, if any."""
        return self.spec.begin

    @cached_property
    def ends(self) -> frozenset[int]:
        """The ids that end a completion."""
        usual = {i for token, i in self.special_tokens.items() if token == END_OF_TEXT}
        return frozenset(usual) if self.spec.ends is None else self.spec.ends

    @cached_property
    def hidden(self) -> frozenset[int]:
        """The ids of control tokens, which are not printed."""
        every = frozenset(self.special_tokens.values())
        return every if self.spec.hidden is None else self.spec.hidden

    @cached_property
    def _added(self) -> list[str]:
        """The special tokens that are not control tokens: any text may hold them."""
        return [token for token, i in self.special_tokens.items() if i not in self.hidden]

    # Text to ids

    def encode(self, text: str, special: SpecialPolicy = "allow") -> list[int]:
        """The ids of a text; by default, special tokens in it become their ids (`allow`).

        `ignore` is about control tokens: added tokens that are text become their ids.
        """
        if special == "ignore" and self._added and isinstance(text, str):
            added = {token: [self.special_tokens[token]] for token in self._added}
            spans = split_specials(text, self._added)
            return [i for span in spans for i in added.get(span) or self._encode(span, special)]
        return self._encode(text, special)

    def encode_tensor(self, text: str) -> Tensor:
        """The ids of a text (1, seq) as a model takes them, after the begin token if it has one.

        `model(tokenizer.encode_tensor("Hello"))` gives logits.
        """
        import torch

        begin = [] if self.begin is None else [self.begin]
        return torch.tensor([begin + self.encode(text)], dtype=torch.long)

    def _encode(self, text: str, special: SpecialPolicy) -> list[int]:
        if self._compiled_encoder is not None:
            return self._compiled_encoder.encode(text, special)
        pure_python = self._pure_python
        if pure_python is not None and (ids := pure_python.encode(text, special)) is not None:
            return ids
        return self._compiled.encode(text, special)

    def encode_array(self, text: str, special: SpecialPolicy = "allow") -> Ids:
        """Encode a text as an array of uint32, a long one on all cores."""
        if isinstance(text, str) and len(text) > _LONG:
            return self._compiled.encode_long(text, special)
        return np.array(self.encode(text, special), np.uint32)

    def encode_batch(
        self, texts: Sequence[str], special: SpecialPolicy = "allow"
    ) -> list[list[int]]:
        """The ids of each text, on all cores."""
        require_lists(texts=texts)
        from trafo.runtime.machine import available_cores
        from trafo.runtime.threads import map_in_order

        workers = available_cores()
        groups = [texts[i::workers] for i in range(workers)]
        ids = map_in_order(lambda group: [self.encode(t, special) for t in group], groups, workers)
        result: list[list[int]] = [[]] * len(texts)
        for i, encoded in enumerate(ids):
            result[i::workers] = encoded
        return result

    def encode_iterable(
        self, texts: Iterable[str], special: SpecialPolicy = "allow"
    ) -> Iterator[int]:
        """The ids of all texts joined, lazily and in constant memory.

        The result does not depend on how the text is divided into strings; a single string works
        too. (With a regular expression of your own, everything between two special tokens is held
        in memory.)
        """
        return self._compiled.encode_iterable(texts, special)

    # Ids to text

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of ids, which may be a flat array or tensor."""
        try:
            return b"".join(map(self.vocab.__getitem__, _as_iterable(ids)))
        except KeyError as error:
            raise InputError(
                f"{error.args[0]!r} is not an id of this tokenizer",
                hint=f"its ids are whole numbers from 0 to {self.vocab_size - 1:,}",
            ) from None
        except TypeError:  # not iterable, or it holds rows
            raise InputError(
                f"{type(ids).__name__} is not a flat list of ids",
                hint="decode the rows of a batch one by one",
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, with U+FFFD for bytes that are not valid UTF-8."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text as ids come in, never half a character."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token_id in _as_iterable(ids):
            text = decoder.decode(self.decode_bytes([token_id]))
            if text:
                yield text
        text = decoder.decode(b"", final=True)
        if text:
            yield text


def _as_iterable(ids: Any) -> Iterable[int]:
    """Arrays and tensors as lists, because their items are not Python's own numbers."""
    plain: Iterable[int] = ids.tolist() if hasattr(ids, "tolist") else ids
    return plain
