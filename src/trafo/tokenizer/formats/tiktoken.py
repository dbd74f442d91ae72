"""tiktoken's rank files, in and out.

One token per line: its bytes in base64, a space, its rank, which is also its id. Merges are not
written: of all neighbours in a word those are merged whose join has the lowest rank. We recover
them, so that one encoder serves all formats. Pattern and special tokens are not written either;
for OpenAI's own files we know them by name.
"""

import binascii
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import atomic_write
from trafo.tokenizer.formats.json_files import read_text
from trafo.tokenizer.formats.spec import SpecialTokens, TokenizerSpec, check_id, with_special_tokens

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
    path: str | Path,
    pattern: str | None = None,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read a rank file; OpenAI's own are known by name, others need a pattern."""
    path = Path(path)
    known_pattern, known_specials = _KNOWN_FILES.get(path.stem, (None, {}))
    pattern = pattern or known_pattern
    if pattern is None:
        raise InputError(
            "a rank file does not say how text is split into words",
            where=str(path),
            hint="name the pattern, for example gpt4",
        )
    ranks = _read_ranks(path)
    merges, all_reachable = recover_merges(ranks)
    vocab = {rank: token for token, rank in ranks.items()}
    spec = TokenizerSpec(vocab, merges, pattern=pattern, whole_words=not all_reachable)
    return with_special_tokens(spec, known_specials if special_tokens is None else special_tokens)


def write_tiktoken(spec: TokenizerSpec, path: str | Path) -> None:
    """Write the ordinary tokens. Refuses a tokenizer whose ids would come out otherwise."""
    ranks = dict(sorted(spec.ordinary_tokens().items(), key=lambda item: item[1]))
    _check_expressible(spec, ranks, str(path))
    with atomic_write(Path(path), "wb") as file:
        for token, rank in ranks.items():
            file.write(b"%b %d\n" % (b64encode(token), rank))


def recover_merges(ranks: Mapping[bytes, int]) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The merge that makes each token, in order of rank, and whether every token has one.

    BPE with only the lower ranks leaves the two tokens of its own merge. If it leaves more,
    the token can only ever be a whole word.
    """
    merges = []
    all_reachable = True
    for token in sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__):
        symbols = _merge_below(token, ranks)
        if len(symbols) == 2:
            merges.append((symbols[0], symbols[1]))
        else:
            all_reachable = False
    return merges, all_reachable


def _merge_below(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """BPE on the token's bytes with only the ranks below its own."""
    limit = ranks[token]
    symbols = [token[i : i + 1] for i in range(len(token))]
    # The rank of each symbol joined with the next; only two of them change with a merge.
    joined = [ranks.get(token[i : i + 2], limit) for i in range(len(token) - 1)]
    while len(symbols) > 2 and (lowest := min(joined)) < limit:
        i = joined.index(lowest)
        symbols[i] += symbols.pop(i + 1)
        joined.pop(i)
        if i < len(joined):
            joined[i] = ranks.get(symbols[i] + symbols[i + 1], limit)
        if i > 0:
            joined[i - 1] = ranks.get(symbols[i - 1] + symbols[i], limit)
    return symbols


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        token, rank = _parse_line(line, where)
        if token in ranks or rank in seen:
            what = f"the token {token!r}" if token in ranks else f"the rank {rank}"
            raise FormatError(f"{what} comes twice", where=where)
        ranks[token] = rank
        seen.add(rank)
    _check_all_bytes(ranks, str(path))
    return ranks


def _parse_line(line: str, where: str) -> tuple[bytes, int]:
    try:
        encoded, rank = line.split()
        token = binascii.a2b_base64(encoded, strict_mode=True)
        if token and rank.lstrip("-").isdecimal():
            return token, check_id(int(rank), where)
    except (binascii.Error, UnicodeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
    raise FormatError(f"{line[:40]!r} is not a base64 token and its rank", where=where)


def _check_all_bytes(ranks: Mapping[bytes, int], where: str) -> None:
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise FormatError(f"there is no token for the byte 0x{missing[0]:02x}", where=where)


def _check_expressible(spec: TokenizerSpec, ranks: Mapping[bytes, int], where: str) -> None:
    _check_all_bytes(ranks, where)
    merges, all_reachable = recover_merges(ranks)
    products = [ranks[left + right] for left, right in spec.merges]
    if products != sorted(products) or not set(merges) <= set(spec.merges):
        raise FormatError(
            "the merges are not in the order of the ids, which a rank file cannot express",
            where=where,
            hint="write vocab.json and merges.txt, or tokenizer.json",
        )
    if not all_reachable and not spec.whole_words:
        raise FormatError(
            "some tokens are made by no merge; a rank file would use them for whole words",
            where=where,
            hint="write vocab.json and merges.txt, or tokenizer.json",
        )
