"""Text -> tokenizer -> token file -> ids to train on and ids to be measured on.

What was made from a text is kept in a cache under the hash of its content, so that a second run on
it begins at once, wherever the text has been moved to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trafo.data.windows import TokenArray
from trafo.errors import ConfigError, InputError
from trafo.runtime.atomic import storage_errors
from trafo.runtime.progress import progress
from trafo.tokenizer import (
    END_OF_TEXT,
    TokenFile,
    Tokenizer,
    encode_files,
    expand_paths,
    train_tokenizer,
)

_READ = 1 << 22


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How text becomes ids. It is tokenized and encoded first; a token file is used as it is."""

    tokens: Path | None = None
    """a token file of `trafo tokenizer encode`, instead of text"""
    tokenizer: Path | None = None
    """a tokenizer's folder; without one, a tokenizer is trained on the text"""
    pattern: str = "gpt2"
    """how a new tokenizer splits text into words"""
    held_out: float = 0.1
    """share of the ids, at the end, that is kept for validation"""
    validation: tuple[str, ...] = ()
    """texts to validate on, instead of the end of the training text"""
    cache: Path = Path("runs/cache")
    """where tokenizers and token files made from texts are kept"""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ConfigError(
                f"data.held_out is {self.held_out}", hint="it must be between 0 and 1"
            )
        if self.tokens is not None and self.tokenizer is None:
            raise ConfigError(
                "data.tokens is given without data.tokenizer",
                hint="name the tokenizer's folder that made the token file",
            )


@dataclass(frozen=True)
class Dataset:
    """Ids by purpose, on disk until they are read, and the tokenizer that made them."""

    tokenizer: Tokenizer
    training: TokenArray
    validation: TokenArray


def prepare(texts: Sequence[str], config: DataConfig, vocab_size: int) -> Dataset:
    """Do what is still to be done for this data; `vocab_size` is that of a new tokenizer."""
    if config.tokens is not None:
        assert config.tokenizer is not None
        tokenizer = Tokenizer.load(config.tokenizer)
        ids: TokenArray = TokenFile.open(config.tokens, tokenizer.hash).ids
    else:
        if not texts:
            raise ConfigError("no text to train on", hint="name a text file, or set data.tokens")
        content = content_hash(texts)
        tokenizer = _tokenizer(texts, config, vocab_size, content)
        ids = _encode(tokenizer, texts, content, config.cache)
    if config.validation:
        content = content_hash(config.validation)
        return Dataset(tokenizer, ids, _encode(tokenizer, config.validation, content, config.cache))
    split = len(ids) - max(1, round(len(ids) * config.held_out))
    return Dataset(tokenizer, ids[:split], ids[split:])


def content_hash(texts: Sequence[str]) -> str:
    """The same for the same bytes in the same order, whatever the files are called."""
    digest = hashlib.blake2b(digest_size=16)
    paths = expand_paths(texts)
    total = sum(path.stat().st_size for path in paths)
    with progress("reading", total=total, unit="MB", scale=1e6) as bar:
        for path in paths:
            # The kind of file decides how its bytes are read.
            digest.update(f"{path.suffix} {path.stat().st_size}\n".encode())
            with storage_errors(path, "reading"), path.open("rb") as file:
                while block := file.read(_READ):
                    digest.update(block)
                    bar.advance(len(block))
    return digest.hexdigest()


def _tokenizer(
    texts: Sequence[str], config: DataConfig, vocab_size: int, content: str
) -> Tokenizer:
    if config.tokenizer is not None:
        return Tokenizer.load(config.tokenizer)
    settings = json.dumps([content, vocab_size, config.pattern, END_OF_TEXT])
    key = hashlib.blake2b(settings.encode(), digest_size=8).hexdigest()
    folder = config.cache / f"tokenizer-{key}"
    if not (folder / "tokenizer.json").is_file():
        _make(config.cache)
        training = train_tokenizer(texts, vocab_size, [END_OF_TEXT], pattern=config.pattern)
        Tokenizer.from_parts(training.parts).save(folder)
    return Tokenizer.load(folder)


def _encode(tokenizer: Tokenizer, texts: Sequence[str], content: str, cache: Path) -> TokenArray:
    _make(cache)
    path = cache / f"{content[:16]}-{tokenizer.hash[:16]}.tokens"
    # Found by its content: where the text was when the file was made does not matter.
    if path.with_name(path.name + ".json").is_file():
        tokens = TokenFile.open(path, tokenizer.hash)
    else:
        tokens = encode_files(tokenizer, texts, path, end_of_document=_end_of_document(tokenizer))
    if not tokens.manifest.num_bytes:
        raise InputError("the text is empty", where=str(texts[0]))
    return tokens.ids


def _end_of_document(tokenizer: Tokenizer) -> str | None:
    return END_OF_TEXT if END_OF_TEXT in tokenizer.special_tokens else None


def _make(folder: Path) -> None:
    with storage_errors(folder, "making the folder"):
        folder.mkdir(parents=True, exist_ok=True)
