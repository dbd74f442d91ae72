"""Files of sentence pairs -> tokenizers -> encoded pairs to train on and to validate with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trafo.data.pair_batches import EncodedPairs
from trafo.data.pair_tokenizer import PairTokenizer, check_tokenizer, train_on_sentences
from trafo.data.pairs import Pair, read_pairs
from trafo.data.prepare import DataCache, DataConfig
from trafo.errors import InputError, require, require_at_least
from trafo.runtime.console import say
from trafo.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TranslationConfig:
    """How sentence pairs become batches."""

    joint: bool = True
    """one vocabulary for both languages; false: one for each"""
    lowercase: bool = False
    """lower-case both sides"""
    source_field: str = "source"
    """field of the source in JSON lines"""
    target_field: str = "target"
    """field of the target in JSON lines"""
    max_tokens: int = 100
    """longest sentence in tokens; longer pairs are left out, and their number is printed"""
    batch_tokens: int = 2000
    """target tokens per optimizer step, about, over all processes and accumulation steps"""

    def __post_init__(self) -> None:
        sizes = {
            "translation.max_tokens": self.max_tokens,
            "translation.batch_tokens": self.batch_tokens,
        }
        require_at_least(2, **sizes)

    @property
    def fields(self) -> tuple[str, str]:
        """The names of both fields."""
        return self.source_field, self.target_field


@dataclass(frozen=True)
class PairDataset:
    """What a translation model is trained on and validated with."""

    tokenizer: PairTokenizer
    training: EncodedPairs
    validation: EncodedPairs
    validation_pairs: list[Pair]
    """the text of `validation`"""
    content: dict[str, str]
    """a hash of the training pairs and of those for validation"""


def prepare_pairs(
    files: Sequence[str],
    validation: Sequence[str],
    config: TranslationConfig,
    data: DataConfig,
    *,
    vocab_sizes: tuple[int, int],
    padding_id: int,
    read_only: bool = False,
) -> PairDataset:
    """Read the pairs, train the tokenizers unless that is done already, and encode.

    With `read_only` the tokenizers must be there already, made by another process.
    """
    pairs = read_pairs(files, config.fields, data.errors)
    if validation:
        held_out = read_pairs(validation, config.fields, data.errors)
    else:
        split = len(pairs) - max(1, round(len(pairs) * data.held_out))
        pairs, held_out = pairs[:split], pairs[split:]
    require(bool(pairs), "one sentence pair is too little to train on", "use more text")
    content = {"training": _hash(pairs), "validation": _hash(held_out)}
    cache = DataCache(data.cache, read_only)
    tokenizer = _tokenizers(pairs, content["training"], config, data, vocab_sizes, cache)
    for each in (tokenizer.source, tokenizer.target):
        check_tokenizer(each, padding_id)
    training, _ = _encode(pairs, tokenizer, config, padding_id, "train on")
    encoded, kept = _encode(held_out, tokenizer, config, padding_id, "validate with")
    return PairDataset(tokenizer, training, encoded, [held_out[i] for i in kept], content)


def _tokenizers(
    pairs: Sequence[Pair],
    content: str,
    config: TranslationConfig,
    data: DataConfig,
    vocab_sizes: tuple[int, int],
    cache: DataCache,
) -> PairTokenizer:
    """Given, or from the cache, or trained."""
    sources, targets = [p.source for p in pairs], [p.target for p in pairs]
    if data.tokenizer is not None:
        given = Tokenizer.load(data.tokenizer)
        return PairTokenizer(given, given, config.lowercase)

    def made(side: str, texts: Sequence[Sequence[str]], vocab_size: int) -> Tokenizer:
        how: Any = {"pattern": data.pattern, "lowercase": config.lowercase}
        settings = [content, side, vocab_size, *how.values()]
        return cache.tokenizer(settings, lambda: train_on_sentences(texts, vocab_size, **how))

    if not config.joint:
        source = made("source", [sources], vocab_sizes[0])
        return PairTokenizer(source, made("target", [targets], vocab_sizes[1]), config.lowercase)
    require(
        vocab_sizes[0] == vocab_sizes[1],
        f"translation.joint is true, vocabularies have {vocab_sizes[0]:,} and {vocab_sizes[1]:,}",
        "give both the same size, or set translation.joint to false",
    )
    both = made("both", [sources, targets], vocab_sizes[0])
    return PairTokenizer(both, both, config.lowercase)


def _encode(
    pairs: Sequence[Pair],
    tokenizer: PairTokenizer,
    config: TranslationConfig,
    padding_id: int,
    purpose: str,
) -> tuple[EncodedPairs, NDArray[np.int64]]:
    """All that are short enough, and which of the pairs those are."""
    source = tokenizer.encode_source([pair.source for pair in pairs])
    target = tokenizer.encode_target([pair.target for pair in pairs])
    fits = np.maximum(source.lengths, target.lengths) <= config.max_tokens
    kept, left_out = np.flatnonzero(fits), np.flatnonzero(~fits)
    if len(left_out):
        first = pairs[left_out[0]].where
        if not len(kept):
            what = f"no pair has at most {config.max_tokens} tokens on both sides"
            raise InputError(what, where=pairs[0].file, hint="raise translation.max_tokens")
        say(
            f"left out {len(left_out):,} of {len(pairs):,} pairs to {purpose}: longer than "
            f"translation.max_tokens, {config.max_tokens}; the first is {first}"
        )
    return EncodedPairs(source.take(kept), target.take(kept), padding_id), kept


def _hash(pairs: Sequence[Pair]) -> str:
    """The same for the same sentences in the same order, whatever the files are."""
    digest = hashlib.blake2b(digest_size=16)
    for pair in pairs:
        digest.update(f"{pair.source}\0{pair.target}\0".encode())
    return digest.hexdigest()
