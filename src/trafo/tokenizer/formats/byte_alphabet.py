"""Bytes <-> printable text, as GPT-2's files spell them.

In: tokens as bytes. Out: the same as text in which each byte is one visible character. Bytes that
are printable in Latin-1 stand for themselves; the other 68 (blanks, control characters, the soft
hyphen) become the characters from U+0100 on, in order. So the space is `Ġ` and the newline `Ċ`.
"""

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
