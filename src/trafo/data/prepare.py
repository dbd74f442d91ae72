"""Text -> tokenizer -> token file -> training ids and validation ids.

What was made from a text is cached under the hash of its content, so that a second run on it begins
at once, wherever the text has been moved to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trafo.data.windows import TokenArray
from trafo.errors import InputError, require
from trafo.runtime.atomic import storage_errors
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

_READ = 1 << 22


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The tokenizer, and the split into training and validation data."""

    tokens: Path | None = None
    """token file of `trafo tokenizer encode`, to train on instead of text"""
    tokenizer: Path | None = None
    """tokenizer folder; None: a tokenizer is trained on the text"""
    pattern: str = "gpt2"
    """pre-tokenization pattern of a new tokenizer"""
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
    texts: Sequence[str], config: DataConfig, vocab_size: int, validation: Sequence[str] = ()
) -> Dataset:
    """Train a tokenizer of `vocab_size` and encode the text, unless that is done already.

    Without texts for `validation`, the end of the text is held out.
    """
    if config.tokens is not None:
        assert config.tokenizer is not None
        tokenizer = Tokenizer.load(config.tokenizer)
        ids: TokenArray = TokenFile.open(config.tokens, tokenizer.hash).ids
        content = content_hash([config.tokens])
    else:
        require(bool(texts), "no text to train on", "give a text file, or set data.tokens")
        inputs = open_inputs(texts)
        content = content_hash([file.path for file in inputs.files])
        tokenizer = _tokenizer(inputs, config, vocab_size, content)
        ids = _encode(tokenizer, inputs, content, config.cache)
    if validation:
        inputs = open_inputs(validation)
        held = content_hash([file.path for file in inputs.files])
        held_out = _encode(tokenizer, inputs, held, config.cache)
        return Dataset(tokenizer, ids, held_out, {"training": content, "validation": held})
    split = len(ids) - max(1, round(len(ids) * config.held_out))
    both = {"training": content, "validation": content}
    return Dataset(tokenizer, ids[:split], ids[split:], both)


def content_hash(paths: Sequence[Path]) -> str:
    """The same for the same bytes in the same order, whatever the files are called."""
    digest = hashlib.blake2b(digest_size=16)
    total = sum(path.stat().st_size for path in paths)
    with progress("reading", total=total, unit="MB", scale=1e6) as bar:
        for path in paths:
            # The kind of file decides how its bytes are read.
            digest.update(f"{path.suffix} {path.stat().st_size}\n".encode())
            with storage_errors(path, "reading"), path.open("rb") as file:
                while data := file.read(_READ):
                    digest.update(data)
                    bar.advance(len(data))
    return digest.hexdigest()


def _tokenizer(inputs: Inputs, config: DataConfig, vocab_size: int, content: str) -> Tokenizer:
    if config.tokenizer is not None:
        return Tokenizer.load(config.tokenizer)
    settings = json.dumps([content, vocab_size, config.pattern, END_OF_TEXT])
    key = hashlib.blake2b(settings.encode(), digest_size=8).hexdigest()
    folder = config.cache / f"tokenizer-{key}"
    if not (folder / "tokenizer.json").is_file():
        _make(config.cache)
        training = train_tokenizer(inputs, vocab_size, [END_OF_TEXT], pattern=config.pattern)
        Tokenizer.from_spec(training.spec).save(folder)
    return Tokenizer.load(folder)


def _encode(tokenizer: Tokenizer, inputs: Inputs, content: str, cache: Path) -> TokenArray:
    _make(cache)
    path = cache / f"{content[:16]}-{tokenizer.hash[:16]}.tokens"
    # Found by its content: where the text was when the file was made does not matter.
    if path.with_name(path.name + ".json").is_file():
        tokens = TokenFile.open(path, tokenizer.hash)
    else:
        tokens = encode_files(tokenizer, inputs, path, end_of_document=_end_of_document(tokenizer))
    if not tokens.manifest.num_bytes:
        raise InputError("the text is empty", where=str(inputs.files[0].path))
    return tokens.ids


def _end_of_document(tokenizer: Tokenizer) -> str | None:
    return END_OF_TEXT if END_OF_TEXT in tokenizer.special_tokens else None


def _make(folder: Path) -> None:
    with storage_errors(folder, "making the folder"):
        folder.mkdir(parents=True, exist_ok=True)
