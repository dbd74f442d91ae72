"""Tokens as people can read them: white space made visible, half characters in hexadecimal."""

import codecs

_VISIBLE = {" ": "·", "\n": "↵", "\r": "␍", "\t": "→", "\u00a0": "⍽"}
_LONGEST_RUN = 16  # of one character, before it is abbreviated


def readable(token: bytes) -> str:
    """` the` becomes `·the`, 80 dashes `-×80`, the first byte of `é` `<C3>`."""
    text = _decode(token)
    if len(text) > _LONGEST_RUN and len(set(text)) == 1:
        return f"{_visible(text[0])}×{len(text)}"
    return "".join(map(_visible, text))


def _decode(token: bytes) -> str:
    return token.decode("utf-8", errors=_HEXADECIMAL)


def _visible(character: str) -> str:
    if character in _VISIBLE:
        return _VISIBLE[character]
    return character if character.isprintable() else f"<U+{ord(character):04X}>"


def _as_hexadecimal(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(f"<{byte:02X}>" for byte in wrong), error.end


_HEXADECIMAL = "trafo-hexadecimal"
codecs.register_error(_HEXADECIMAL, _as_hexadecimal)
