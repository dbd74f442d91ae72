"""GPT-2's `vocab.json` + `merges.txt`, in and out.

`vocab.json` maps each token, in printable characters (`byte_alphabet.py`), to its id. `merges.txt`
has one merge per line, the two tokens separated by a space, in order of creation, after an optional
first line `#version: ...`. The split pattern and which tokens are special are written nowhere.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write
from trafo.tokenizer.formats.byte_alphabet import from_printable, to_printable
from trafo.tokenizer.formats.json_files import read_json, read_text, write_json
from trafo.tokenizer.formats.spec import SpecialTokens, TokenizerSpec, check_id, with_special_tokens

_VERSION_LINE = "#version: 0.2\n"


def read_gpt2(
    vocab_path: Path,
    merges_path: Path,
    special_tokens: SpecialTokens = (),
    pattern: str = "gpt2",
) -> TokenizerSpec:
    """Read the two files; the pattern and the special tokens, which they leave out, are given."""
    vocab = parse_vocab(read_json(vocab_path), str(vocab_path), set(special_tokens))
    numbered = _merge_lines(read_text(merges_path))
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
    """Printable tokens to bytes.

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
    """Printable pairs to bytes; both, and what they make, must be tokens."""
    merges: dict[tuple[bytes, bytes], int] = {}
    for index, pair in enumerate(pairs):
        tokens_of_pair = pair if isinstance(pair, list) else []
        if len(tokens_of_pair) != 2 or not all(isinstance(t, str) and t for t in tokens_of_pair):
            raise FormatError(
                "a merge needs two tokens", where=place_of(index), hint="separate them by one space"
            )
        try:
            left, right = map(from_printable, pair)
        except KeyError as error:
            raise _no_byte(error, place_of(index)) from error
        for token in (left, right, left + right):
            if token not in tokens:
                what = f"{to_printable(token)!r} is not in the vocabulary"
                raise FormatError(what, where=place_of(index))
        if merges.setdefault((left, right), index) != index:
            first = place_of(merges[left, right])
            raise FormatError(
                "the merge is given twice", where=place_of(index), hint=f"see {first}"
            )
    return list(merges)


def _merge_lines(text: str) -> list[tuple[int, str]]:
    """(line number, line). Not `splitlines`: it also splits at characters of the byte alphabet."""
    numbered = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1)]
    if numbered[0][1].startswith("#version"):
        numbered = numbered[1:]
    return [(number, line) for number, line in numbered if line]


def _no_byte(error: KeyError, place: str) -> FormatError:
    return FormatError(
        f"the character {error.args[0]!r} is not in the byte alphabet",
        where=place,
        hint="tokens are written in GPT-2's byte alphabet, a space as 'Ġ'",
    )
