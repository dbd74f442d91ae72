"""GPT-2's `vocab.json` + `merges.txt`, in and out.

`vocab.json` maps each token, in printable characters, to its id. `merges.txt` has one merge per
line, the two tokens separated by a space, in order of creation, after an optional first line
`#version: ...`. The split pattern and which tokens are special are written nowhere.

In its byte alphabet, each byte is one visible character. Bytes that are printable in Latin-1 stand
for themselves. The other 68 (blanks, control characters, the soft hyphen) are the characters from
U+0100 on, in order: the space is `Ġ` and the newline `Ċ`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write
from trafo.runtime.json_text import read_json, read_text, write_json
from trafo.tokenizer.formats.spec import SpecialTokens, TokenizerSpec, check_id, with_special_tokens

_VERSION_LINE = "#version: 0.2\n"

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted(set(range(256)) - set(_PRINTABLE))
_CHARACTERS = {byte: chr(byte) for byte in _PRINTABLE}
_CHARACTERS |= {byte: chr(0x100 + i) for i, byte in enumerate(_OTHERS)}
_BYTES = {character: byte for byte, character in _CHARACTERS.items()}


def to_printable(token: bytes) -> str:
    """b" the" -> "Ġthe"."""
    return "".join(map(_CHARACTERS.__getitem__, token))


def from_printable(text: str) -> bytes:
    """ "Ġthe" -> b" the". A character that is not in the alphabet raises KeyError."""
    return bytes(map(_BYTES.__getitem__, text))


def read_gpt2(
    vocab_path: Path,
    merges_path: Path,
    special_tokens: SpecialTokens = (),
    pattern: str = "gpt2",
) -> TokenizerSpec:
    """Read the two files. They lack the pattern and the special tokens, which are given."""
    vocab = parse_vocab(read_json(vocab_path), str(vocab_path), set(special_tokens))
    # Not `splitlines`, which also splits at characters of the byte alphabet.
    lines = [line.rstrip("\r") for line in read_text(merges_path).split("\n")]
    numbered = [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line and not (number == 1 and line.startswith("#version"))
    ]
    merges = parse_merges(
        [line.split(" ") for _, line in numbered],
        set(vocab.values()),
        lambda index: f"{merges_path}, line {numbered[index][0]}",
    )
    return with_special_tokens(TokenizerSpec(vocab, merges, pattern=pattern), special_tokens)


def write_gpt2(spec: TokenizerSpec, vocab_path: Path, merges_path: Path) -> None:
    """Write the two files."""
    id_of_token = spec.ordinary_tokens()
    for special, i in spec.special_tokens.items():
        id_of_token.setdefault(special.encode(), i)
    by_id = sorted(id_of_token.items(), key=lambda item: item[1])
    write_json(vocab_path, {to_printable(token): i for token, i in by_id})
    with atomic_write(merges_path, "wb") as file:
        lines = [f"{to_printable(left)} {to_printable(right)}\n" for left, right in spec.merges]
        file.write((_VERSION_LINE + "".join(lines)).encode())


def parse_vocab(
    id_of_key: Mapping[str, Any], where: str, plain: Collection[str] = ()
) -> dict[int, bytes]:
    """Turn printable tokens into bytes.

    Only keys in `plain` (special tokens) may have characters that are not in the byte alphabet.
    """
    vocab: dict[int, bytes] = {}
    for key, value in id_of_key.items():
        place = f"{where}, token {key!r}"
        i = check_id(value, place)
        try:
            token = from_printable(key)
        except KeyError as error:
            if key not in plain:
                raise _no_byte(error, place) from error
            token = key.encode()
        if vocab.setdefault(i, token) != token:
            raise FormatError(f"the id {i} is also that of {vocab[i]!r}", where=place)
    return vocab


def parse_merges(
    pairs: Iterable[Any], tokens: Collection[bytes], place_of: Callable[[int], str]
) -> list[tuple[bytes, bytes]]:
    """Turn printable pairs into bytes. Both, and what they make, must be tokens."""
    merges: dict[tuple[bytes, bytes], int] = {}
    decode = cache(from_printable)  # most tokens are a part of many merges
    for index, pair in enumerate(pairs):
        if not (isinstance(pair, list) and [type(t) for t in pair] == [str, str] and all(pair)):
            hint = "separate them by one space"
            raise FormatError("a merge needs two tokens", where=place_of(index), hint=hint)
        try:
            merge = decode(pair[0]), decode(pair[1])
        except KeyError as error:
            raise _no_byte(error, place_of(index)) from error
        for token in (*merge, merge[0] + merge[1]):
            if token not in tokens:
                what = f"{to_printable(token)!r} is not in the vocabulary"
                raise FormatError(what, where=place_of(index))
        if merges.setdefault(merge, index) != index:
            hint = f"see {place_of(merges[merge])}"
            raise FormatError("the merge is given twice", where=place_of(index), hint=hint)
    return list(merges)


def _no_byte(error: KeyError, place: str) -> FormatError:
    return FormatError(
        f"the character {error.args[0]!r} is not in the byte alphabet",
        where=place,
        hint="tokens are written in GPT-2's byte alphabet, a space as 'Ġ'",
    )
