"""tiktoken's rank files, in and out.

One token per line: its bytes in base64, a space, its rank, which is also its id. The merges are not
in the file: of all neighbours in a word, tiktoken joins those whose result has the lowest rank, the
leftmost first. A word that is a token as a whole is that token. Pattern and special tokens are not
in the file either; for OpenAI's own files we know them by name.

This is BPE with merges in order of rank, so one encoder serves all formats: when a token is made
inside a word, no merge has crossed its borders yet, so the merges inside are those of its bytes
alone. The last of them is the only pair that ever makes the token. Its parts may have a higher rank
than the token.
"""

import binascii
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import atomic_write
from trafo.runtime.json_text import read_text
from trafo.tokenizer.formats.spec import (
    MAX_ID,
    SpecialTokens,
    TokenizerSpec,
    check_id,
    with_special_tokens,
)

_NO_RANK = MAX_ID + 1
_GPT2_SPECIALS = {"<|endoftext|>": 50256}
_KNOWN_FILES: dict[str, tuple[str, dict[str, int]]] = {
    "gpt2": ("gpt2", _GPT2_SPECIALS),
    "r50k_base": ("gpt2", _GPT2_SPECIALS),
    "p50k_base": ("gpt2", _GPT2_SPECIALS),
    "cl100k_base": (
        "gpt4",
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": ("gpt4o", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}


def read_tiktoken(
    path: Path, pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> TokenizerSpec:
    """Read a rank file. OpenAI's own are known by name, others need a pattern."""
    known_pattern, known_specials = _KNOWN_FILES.get(path.stem, (None, {}))
    pattern = pattern or known_pattern
    if pattern is None:
        raise InputError(
            "a rank file does not say how text is split into words",
            where=str(path),
            hint="name the pattern (gpt2, gpt4, gpt4o, llama3 or a regular expression): `trafo "
            "tokenizer convert IN OUT --pattern gpt4`, or Tokenizer.load(path, pattern='gpt4')",
        )
    ranks = _read_ranks(path)
    merges, all_reachable = derive_merges(ranks)
    vocab = {rank: token for token, rank in ranks.items()}
    spec = TokenizerSpec(vocab, merges, pattern=pattern, ignore_merges=not all_reachable)
    return with_special_tokens(spec, known_specials if special_tokens is None else special_tokens)


def write_tiktoken(spec: TokenizerSpec, path: Path) -> None:
    """Write the ordinary tokens, unless a reader of ranks would give other ids."""
    ranks = spec.ordinary_tokens()
    _check_all_bytes(ranks, str(path))
    merges, all_reachable = derive_merges(ranks)
    products = [ranks[left + right] for left, right in spec.merges]
    problem = None
    if products != sorted(products) or not set(merges) <= set(spec.merges):
        problem = "the merges are not in the order of the ids, which a rank file cannot express"
    elif not all_reachable and not spec.ignore_merges:
        problem = "some tokens are made by no merge; a rank file would use them for whole words"
    if problem:
        hint = "write vocab.json and merges.txt, or tokenizer.json"
        raise FormatError(problem, where=str(path), hint=hint)
    with atomic_write(path, "wb") as file:
        for token, rank in ranks.items():
            file.write(b"%b %d\n" % (b64encode(token), rank))


def derive_merges(ranks: Mapping[bytes, int]) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Find the merge that makes each token, in order of rank, and whether every token has one.

    A token that BPE on its own bytes does not end with can only ever be a whole word.
    """
    merges = []
    all_reachable = True
    for token in sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__):
        parts = _last_parts(token, ranks)
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
        else:
            all_reachable = False
    return merges, all_reachable


def _last_parts(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Run BPE by rank on the token's bytes up to its last step, or until nothing merges."""
    symbols = [token[i : i + 1] for i in range(len(token))]
    # The rank of each symbol joined with the next; only two of them change with a merge.
    joined = [ranks.get(token[i : i + 2], _NO_RANK) for i in range(len(token) - 1)]
    while len(symbols) > 2 and (lowest := min(joined)) < _NO_RANK:
        i = joined.index(lowest)
        symbols[i] += symbols.pop(i + 1)
        joined.pop(i)
        if i < len(joined):
            joined[i] = ranks.get(symbols[i] + symbols[i + 1], _NO_RANK)
        if i > 0:
            joined[i - 1] = ranks.get(symbols[i - 1] + symbols[i], _NO_RANK)
    return symbols


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    known_ranks: set[int] = set()
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        token, rank = _parse_line(line, where)
        if token in ranks or rank in known_ranks:
            what = f"the token {token!r}" if token in ranks else f"the rank {rank}"
            raise FormatError(f"{what} is given twice", where=where)
        ranks[token] = rank
        known_ranks.add(rank)
    _check_all_bytes(ranks, str(path))
    return ranks


def _parse_line(line: str, where: str) -> tuple[bytes, int]:
    try:
        encoded, digits = line.split()
        token, rank = binascii.a2b_base64(encoded, strict_mode=True), int(digits)
    except ValueError:  # `binascii.Error` and `UnicodeError` are ValueErrors, too
        token, rank = b"", 0
    if not token or not digits.lstrip("-").isdecimal():
        raise FormatError(f"{line[:40]!r} is not a base64 token and its rank", where=where)
    return token, check_id(rank, where)


def _check_all_bytes(ranks: Mapping[bytes, int], where: str) -> None:
    for byte in range(256):
        if bytes([byte]) not in ranks:
            raise FormatError(f"has no token for the byte 0x{byte:02x}", where=where)
