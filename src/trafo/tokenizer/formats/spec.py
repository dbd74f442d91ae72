"""What a tokenizer consists of, and the hash that identifies it.

In: what a file format or training gives. Out: `TokenizerSpec`, which every format reads into and
writes from, and which `Tokenizer` is built from.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trafo.errors import FormatError, InputError, require_lists
from trafo.tokenizer.patterns import pattern_regex

END_OF_TEXT = "<|endoftext|>"  # the usual special token between documents
MAX_ID = 2**31 - 1

SpecialTokens = Iterable[str] | Mapping[str, int]  # with ids or without


@dataclass(frozen=True)
class TokenizerSpec:
    """All that decides which ids a text becomes.

    `vocab` holds the special tokens too, and ids may have gaps. `ignore_merges` takes a word that
    is a token as that token, whatever the merges say, which vocabularies with tokens that no merge
    makes need. `nfc` normalizes what is between special tokens before it is split into words. The
    special tokens in `normalized_tokens` are looked for only then, in what the other special
    tokens have left.
    """

    vocab: dict[int, bytes]
    merges: list[tuple[bytes, bytes]]
    special_tokens: dict[str, int] = field(default_factory=dict)
    pattern: str = "gpt2"
    ignore_merges: bool = False
    nfc: bool = False
    normalized_tokens: frozenset[str] = frozenset()
    # How a model uses it. Specifications that differ only here are equal: they give the same ids.
    begin: int | None = field(default=None, compare=False)
    """put before a text"""
    ends: frozenset[int] | None = field(default=None, compare=False)
    """end a completion; None: `<|endoftext|>`"""
    hidden: frozenset[int] | None = field(default=None, compare=False)
    """control tokens, which are not printed; None: all special tokens"""
    chat_template: str | None = field(default=None, compare=False)
    """how a chat is written, in Jinja"""
    chat_tokens: Mapping[str, str] = field(default_factory=dict, compare=False)
    """what templates call `bos_token`, `eos_token` and so on"""

    def ordinary_tokens(self) -> dict[bytes, int]:
        """Map the tokens that plain text can become, all but those only special, to their ids."""
        only_special = set(self.special_tokens.values())
        made_by_bpe = {bytes([byte]) for byte in range(256)} | {a + b for a, b in self.merges}
        id_of_token: dict[bytes, int] = {}
        for i, token in sorted(self.vocab.items()):
            if i not in only_special and token in id_of_token:
                raise FormatError(f"ids {id_of_token[token]} and {i} are the same token {token!r}")
            if i not in only_special or token in made_by_bpe:
                id_of_token.setdefault(token, i)
        return id_of_token


def merges_as_ids(spec: TokenizerSpec, ids: Mapping[bytes, int]) -> list[tuple[int, int, int]]:
    """List the merges as ids of left, right and merged, given those of the ordinary tokens."""
    try:
        return [(ids[left], ids[right], ids[left + right]) for left, right in spec.merges]
    except KeyError as error:
        missing = error.args[0]
        left, right = next(pair for pair in spec.merges if missing in (*pair, pair[0] + pair[1]))
        raise FormatError(
            f"the vocabulary lacks {missing!r}",
            where=f"merge of {left!r} and {right!r}",
            hint="vocabulary and merges must belong to the same tokenizer",
        ) from None


def hash_spec(spec: TokenizerSpec) -> str:
    """Hash all that decides which ids a text becomes by SHA-256, however it was loaded."""
    digest = hashlib.sha256(b"trafo tokenizer 1\n")

    def add(*fields: bytes | int) -> None:
        for value in fields:  # lengths first, so that no two contents give the same bytes
            data = struct.pack("<q", value) if isinstance(value, int) else value
            digest.update(struct.pack("<q", len(data)) + data)

    add(len(spec.vocab), len(spec.merges), len(spec.special_tokens))
    for i, token in sorted(spec.vocab.items()):
        add(i, token)
    for left, right in spec.merges:
        add(left, right)
    for special, i in sorted(spec.special_tokens.items()):
        add(special.encode(), i)
    # A pattern's name and its expression mean the same.
    add(pattern_regex(spec.pattern).encode(), int(spec.ignore_merges))
    if spec.nfc or spec.normalized_tokens:
        add(int(spec.nfc), *(token.encode() for token in sorted(spec.normalized_tokens)))
    return digest.hexdigest()


def with_special_tokens(spec: TokenizerSpec, special_tokens: SpecialTokens) -> TokenizerSpec:
    """Add special tokens, with given ids or without.

    Without, a token that the vocabulary holds keeps its id and the others are appended.
    """
    require_lists(special_tokens=special_tokens)
    vocab, specials = dict(spec.vocab), dict(spec.special_tokens)
    last_id_of_token = {token: i for i, token in sorted(vocab.items())}
    given = special_tokens if isinstance(special_tokens, Mapping) else {}
    next_id = max(vocab, default=-1) + 1
    for special in special_tokens:
        token = special_bytes(special)
        i = given.get(special, specials.get(special, last_id_of_token.get(token)))
        i = check_id(next_id if i is None else i, repr(special))
        next_id = max(next_id, i + 1)
        if vocab.setdefault(i, token) != token:
            raise FormatError(f"the id {i} of {special!r} already belongs to {vocab[i]!r}")
        specials[special] = i
    return replace(spec, vocab=vocab, special_tokens=specials)


def special_bytes(special: str) -> bytes:
    """Return a special token as UTF-8. It must be text, of at least one character."""
    if not special:
        raise InputError("a special token is empty", hint="give it at least one character")
    try:
        return special.encode()
    except UnicodeEncodeError:
        what = f"the special token {special!r} has a lone surrogate, which is not a character"
        raise InputError(what, hint="write it with characters that UTF-8 can hold") from None


def check_id(value: object, where: str) -> int:
    """Refuse what is not an id. Ids are stored in 32 bits and are never negative."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise FormatError(f"the id {value!r} is not a whole number", where=where)
    if not 0 <= value <= MAX_ID:
        raise FormatError(f"the id {value} is not between 0 and {MAX_ID}", where=where)
    return value
