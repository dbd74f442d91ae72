"""Byte-level BPE as short and plain as it can be. Read this first.

In: text. Out: a vocabulary and merges (training), ids (encoding), text again (decoding).
The algorithm is that of Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909) on bytes, as in
GPT-2. It is slow on purpose: the fast path is tested to give exactly what this gives.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import regex

from trafo.errors import InputError, require_lists
from trafo.tokenizer.kernels.arrays import LONGEST_TOKEN
from trafo.tokenizer.patterns import split_words

Vocab = dict[int, bytes]
Pair = tuple[bytes, bytes]


def train_bpe_reference(
    text: str, vocab_size: int, special_tokens: Sequence[str], pattern: str = "gpt2"
) -> tuple[Vocab, list[Pair]]:
    """Learn merges until the vocabulary is full or no pair of at most LONGEST_TOKEN is left.

    Ids 0..255 are the bytes, then come the merges in order of creation, then the special tokens.
    """
    require_lists(special_tokens=special_tokens)
    specials = list(dict.fromkeys(special_tokens))
    if vocab_size < 256 + len(specials):
        raise InputError(
            f"a vocabulary of {vocab_size} is too small",
            hint=f"256 bytes and {len(specials)} special tokens need {256 + len(specials)}",
        )
    counts = _count_words(text, specials, pattern)
    merges: list[Pair] = []
    while len(merges) < vocab_size - 256 - len(specials):
        pairs = _count_pairs(counts)
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))  # ties: the greater byte strings
        merges.append(best)
        counts = Counter({_merge(word, best): count for word, count in counts.items()})

    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [left + right for left, right in merges]
    tokens += [special.encode() for special in specials]
    return dict(enumerate(tokens)), merges


def encode_reference(
    text: str,
    vocab: Vocab,
    merges: Sequence[Pair],
    special_tokens: Iterable[str] | None = None,
    pattern: str = "gpt2",
    ignore_merges: bool = False,
) -> list[int]:
    """Text to ids: in each word, merge the pair that was learned first, until none is left.

    `ignore_merges` takes a word that is a token as that token, whatever the merges say, as tiktoken
    does (and Hugging Face with `ignore_merges`).
    """
    require_lists(special_tokens=special_tokens)
    specials = list(dict.fromkeys(special_tokens or ()))
    rank_of_pair = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
    id_of_token = {token: i for i, token in reversed(vocab.items())}  # the first of doubles
    id_of_special = {token: i for i, token in vocab.items()}  # the last of doubles
    for special in specials:  # those missing from the vocabulary are appended
        id_of_special.setdefault(special.encode(), max([*vocab, *id_of_special.values()]) + 1)

    ids: list[int] = []
    for span in split_specials(text, specials):
        if span in specials:
            ids.append(id_of_special[span.encode()])
            continue
        for word in split_words(span, pattern):
            whole = word.encode()
            known = ignore_merges and whole in id_of_token
            tokens = (whole,) if known else _merge_word(_as_bytes(word), rank_of_pair)
            ids += [id_of_token[token] for token in tokens]
    return ids


def decode_reference(ids: Iterable[int], vocab: Vocab) -> str:
    """Ids to text. Bytes that are not UTF-8 become U+FFFD: ids may begin inside a character."""
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")


def split_specials(text: str, special_tokens: Sequence[str]) -> list[str]:
    """Split a text into special tokens and what is between; the longest wins where they overlap."""
    if "" in special_tokens:
        raise InputError("a special token is empty", hint="give it at least one character")
    if not special_tokens:
        return [text]
    longest_first = sorted(special_tokens, key=len, reverse=True)
    any_special = "|".join(regex.escape(special) for special in longest_first)
    return [span for span in regex.split(f"({any_special})", text) if span]


def _count_words(text: str, specials: Sequence[str], pattern: str) -> Counter[tuple[bytes, ...]]:
    counts: Counter[tuple[bytes, ...]] = Counter()
    for span in split_specials(text, specials):
        if span not in specials:
            counts.update(_as_bytes(word) for word in split_words(span, pattern))
    return counts


def _as_bytes(word: str) -> tuple[bytes, ...]:
    return tuple(bytes([byte]) for byte in word.encode())


def _count_pairs(counts: Counter[tuple[bytes, ...]]) -> Counter[Pair]:
    pairs: Counter[Pair] = Counter()
    for word, count in counts.items():
        for left, right in pairwise(word):
            if len(left) + len(right) <= LONGEST_TOKEN:
                pairs[left, right] += count
    return pairs


def _merge(word: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    """Join every occurrence of the pair, from the left."""
    merged: list[bytes] = []
    i = 0
    while i < len(word):
        if word[i : i + 2] == pair:
            merged.append(word[i] + word[i + 1])
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return tuple(merged)


def _merge_word(word: tuple[bytes, ...], rank_of_pair: dict[Pair, int]) -> tuple[bytes, ...]:
    """Join the pair of lowest rank, the leftmost of equals, one at a time, until none is left."""
    while True:
        ranked = [
            (rank_of_pair[pair], i) for i, pair in enumerate(pairwise(word)) if pair in rank_of_pair
        ]
        if not ranked:
            return word
        _, i = min(ranked)
        word = (*word[:i], word[i] + word[i + 1], *word[i + 2 :])
