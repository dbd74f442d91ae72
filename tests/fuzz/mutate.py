"""Bytes -> damaged bytes: by chance, and by what breaks readers of numbers, text and nesting."""

from __future__ import annotations

import json
import random
import re
from typing import Any

NUMBERS = (
    *("0", "-1", "1", "2", "7", "255", "65536", "2147483648", "4294967295", "9223372036854775808"),
    *("-9223372036854775809", "1e308", "1e999", "-1e999", "NaN", "Infinity", "0.1", "9" * 400),
)
WORDS = (
    "null",
    "true",
    "[]",
    "{}",
    '""',
    '"x"',
    "[[]]",
    ".nan",
    ".inf",
    "${a}",
    "!!python/x",
    "\0",
)
VALUES: tuple[Any, ...] = (
    *(None, True, [], {}, "", "x", "\0", "\ud800", -1, 0, 1, 2, 3, 2**31, 2**63, 10**400, 0.5),
    *(
        float("nan"),
        float("inf"),
        -1e300,
        [None],
        {"a": None},
        ["x", 1],
        "../../etc/passwd",
        "9" * 99,
    ),
)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """One to four changes; JSON is changed as a tree half of the time."""
    if data[:1] in (b"{", b"[") and chance.random() < 0.5:
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            pass
        else:
            for _ in range(chance.randint(1, 2)):
                tree = _changed_tree(tree, chance)
            return json.dumps(tree).encode("utf-8", "surrogatepass")
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(CHANGES)(data, chance)
    return data


def _changed_tree(tree: Any, chance: random.Random) -> Any:
    """One value, somewhere, replaced, dropped or renamed."""
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.15:
        return chance.choice(VALUES)
    if isinstance(tree, list):
        place = chance.randrange(len(tree))
        new = [] if chance.random() < 0.2 else [_changed_tree(tree[place], chance)]
        return [*tree[:place], *new, *tree[place + 1 :]]
    key = chance.choice(list(tree))
    others = {name: value for name, value in tree.items() if name != key}
    kind = chance.random()
    if kind < 0.15:
        return others
    if kind < 0.25:
        return others | {chance.choice(("", "x", key + " ", key.upper())): tree[key]}
    return others | {key: _changed_tree(tree[key], chance)}


def _range(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randint(0, len(data))
    return start, min(len(data), start + int(2 ** chance.uniform(0, 12)))


def _flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, chance: random.Random) -> bytes:
    start, _ = _range(data, chance)
    new = chance.choice((b"\xff" * 8, b"\0" * 8, b"\x7f\xff\xff\xff", b"\x80", chance.randbytes(4)))
    return data[:start] + new + data[start + len(new) :]


def _delete(data: bytes, chance: random.Random) -> bytes:
    start, end = _range(data, chance)
    return data[:start] + data[end:]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    start, end = _range(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 2, 50)) + data[end:]


def _move(data: bytes, chance: random.Random) -> bytes:
    start, end = _range(data, chance)
    place, _ = _range(data, chance)
    return data[:place] + data[start:end] + data[place:]


def _truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randint(0, len(data))]


def _insert(data: bytes, chance: random.Random) -> bytes:
    start, _ = _range(data, chance)
    nested = chance.choice((b"[", b'{"a":', b"- ", b"((")) * chance.choice((5, 3000))
    new = chance.choice((b"\n", b"\r\n", b"\t", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", nested))
    return data[:start] + new + data[start:]


def _number(data: bytes, chance: random.Random) -> bytes:
    """Another number in place of one."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", data[:20_000]))
    if not found:
        return _flip(data, chance)
    match = chance.choice(found)
    return data[: match.start()] + chance.choice(NUMBERS).encode() + data[match.end() :]


def _word(data: bytes, chance: random.Random) -> bytes:
    """Another value in place of a word."""
    found = list(re.finditer(rb"\w+", data[:20_000]))
    if not found:
        return _insert(data, chance)
    match = chance.choice(found)
    return data[: match.start()] + chance.choice(WORDS).encode() + data[match.end() :]


CHANGES = (
    *(_flip, _flip, _overwrite, _delete, _repeat, _move, _truncate, _insert, _number, _number),
    _word,
)
