"""Text -> tokenizer -> token file -> training ids and validation ids.

What was made from a text is cached under the hash of its content, so that a second run on it begins
at once, wherever the text has been moved to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from trafo.config import Argument
from trafo.data.windows import TokenArray
from trafo.errors import InputError, TrafoError, require
from trafo.runtime.atomic import ABANDONED, remove_leftovers_in, storage_errors
from trafo.runtime.console import say
from trafo.runtime.progress import progress
from trafo.tokenizer import (
    END_OF_TEXT,
    Inputs,
    TokenFile,
    Tokenizer,
    encode_files,
    open_inputs,
    train_tokenizer,
)
from trafo.tokenizer.files import Errors, read_undecoded

_READ = 1 << 22

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The tokenizer, and the split into training and validation data."""

    tokens: Path | None = None
    """token file of `trafo tokenizer encode`, to train on instead of text"""
    tokenizer: Path | None = None
    """tokenizer folder; None: a tokenizer is trained on the text"""
    pattern: str = "gpt2"
    """pre-tokenization pattern of a new tokenizer"""
    field: Annotated[str, Argument(aliases=("--field",))] = "text"
    """field that holds the text in JSON lines and Parquet"""
    errors: Annotated[Errors, Argument(aliases=("--errors",))] = "strict"
    """invalid UTF-8: stop (strict), or read U+FFFD (replace)"""
    held_out: float = 0.1
    """fraction of the tokens or sentence pairs, at the end, held out for validation"""
    cache: Path = Path("runs/cache")
    """cache of tokenizers and token files that were made from texts"""

    def __post_init__(self) -> None:
        share = self.held_out
        require(0 < share < 1, f"data.held_out is {share}", "it must be between 0 and 1")
        require(
            self.tokens is None or self.tokenizer is not None,
            "data.tokens is given without data.tokenizer",
            "give the folder of the tokenizer that made the token file",
        )


@dataclass(frozen=True)
class Dataset:
    """Training and validation ids, memory-mapped, and the tokenizer that made them."""

    tokenizer: Tokenizer
    training: TokenArray
    validation: TokenArray
    content: dict[str, str]
    """a hash of what each of the two was made from"""


def prepare(
    texts: Sequence[str],
    config: DataConfig,
    vocab_size: int,
    validation: Sequence[str] = (),
    *,
    read_only: bool = False,
) -> Dataset:
    """Train a tokenizer of `vocab_size` and encode the text, unless that is done already.

    Without texts for `validation`, the end of the text is held out. With `read_only`, another
    process must have done all of it.
    """
    cache = DataCache(config.cache, read_only)
    if config.tokens is not None:
        assert config.tokenizer is not None
        tokenizer = Tokenizer.load(config.tokenizer)
        tokens = cache.verify(TokenFile.open(config.tokens, tokenizer.hash))
        ids: TokenArray = tokens.ids
        content = f"CRC-32 {tokens.manifest.checksum:08x}"
    else:
        require(bool(texts), "no text to train on", "give a text file, or set data.tokens")
        inputs = open_inputs(texts, config.field, config.errors)
        content = content_hash(inputs)
        tokenizer = _tokenizer(inputs, config, vocab_size, content, cache)
        ids = _encode(tokenizer, inputs, content, cache)
    if validation:
        inputs = open_inputs(validation, config.field, config.errors)
        held = content_hash(inputs)
        held_out = _encode(tokenizer, inputs, held, cache)
        return Dataset(tokenizer, ids, held_out, {"training": content, "validation": held})
    split = len(ids) - max(1, round(len(ids) * config.held_out))
    both = {"training": content, "validation": content}
    return Dataset(tokenizer, ids[:split], ids[split:], both)


def content_hash(inputs: Inputs) -> str:
    """The same for the same bytes read in the same way, whatever the files are called."""
    digest = hashlib.blake2b(digest_size=16)
    if any(file.has_records for file in inputs.files) and inputs.field != "text":
        digest.update(f"field {inputs.field}\n".encode())
    if inputs.errors != "strict":
        digest.update(f"errors {inputs.errors}\n".encode())
    with progress("reading", total=inputs.size, unit="MB", scale=1e6) as bar:
        for file in inputs.files:
            # The kind of file decides how its bytes are read.
            digest.update(f"{file.path.suffix} {file.size}\n".encode())
            for data in read_undecoded(file.path, _READ):
                digest.update(data)
                bar.advance(len(data))
    return digest.hexdigest()


@dataclass(frozen=True)
class DataCache:
    """A folder of what was made from texts, shared by all runs."""

    folder: Path
    read_only: bool = False

    def get(self, last_file: str, read: Callable[[], T], make: Callable[[], T]) -> T:
        """Read what is cached, or make it if it is missing or (with a message) damaged.

        It is complete when the file that is written last exists.
        """
        last = self.folder / last_file
        if self.read_only:
            hint = "data.cache must be a folder that all processes see"
            require(last.is_file(), f"{last} is missing, although the first process made it", hint)
            return read()
        if last.is_file():
            try:
                return read()
            except TrafoError as error:
                say(f"{error}; making it again")
                last.unlink()
        with storage_errors(self.folder, "making the folder"):
            self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers_in(self.folder, untouched_for=ABANDONED)
        return make()

    def tokenizer(self, settings: list[object], train: Callable[[], Tokenizer]) -> Tokenizer:
        """The tokenizer that `train` makes from what `settings` say."""
        key = hashlib.blake2b(json.dumps(settings).encode(), digest_size=8).hexdigest()
        folder = self.folder / f"tokenizer-{key}"

        def make() -> Tokenizer:
            tokenizer = train()
            tokenizer.save(folder)
            return tokenizer

        return self.get(f"{folder.name}/trafo.json", lambda: Tokenizer.load(folder), make)

    def verify(self, tokens: TokenFile) -> TokenFile:
        """Check it once, in the process that may make it again."""
        return tokens if self.read_only else tokens.verify()


def _tokenizer(
    inputs: Inputs, config: DataConfig, vocab_size: int, content: str, cache: DataCache
) -> Tokenizer:
    if config.tokenizer is not None:
        return Tokenizer.load(config.tokenizer)

    def train() -> Tokenizer:
        training = train_tokenizer(inputs, vocab_size, [END_OF_TEXT], pattern=config.pattern)
        return Tokenizer.from_spec(training.spec)

    return cache.tokenizer([content, vocab_size, config.pattern, END_OF_TEXT], train)


def _encode(tokenizer: Tokenizer, inputs: Inputs, content: str, cache: DataCache) -> TokenArray:
    # Found by its content: where the text was when the file was made does not matter.
    path = cache.folder / f"{content[:16]}-{tokenizer.hash[:16]}.tokens"
    end = END_OF_TEXT if END_OF_TEXT in tokenizer.special_tokens else None
    tokens = cache.get(
        f"{path.name}.json",
        lambda: cache.verify(TokenFile.open(path, tokenizer.hash)),
        lambda: encode_files(tokenizer, inputs, path, end_of_document=end),
    )
    if not tokens.manifest.num_bytes:
        raise InputError("the text is empty", where=str(inputs.files[0].path))
    return tokens.ids
