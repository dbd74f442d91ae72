"""Tokens as people can read them: white space made visible, half characters in hexadecimal."""

import codecs

import regex

_VISIBLE = {" ": "·", "\n": "↵", "\r": "␍", "\t": "→", "\u00a0": "⍽"}
_LONG_RUN = regex.compile(r"(?s)(.)\1{11,}|(.{2,4}?)\2{5,}")
_TIMES = "\N{MULTIPLICATION SIGN}"
_HEXADECIMAL = "trafo-hexadecimal"


def readable(token: bytes) -> str:
    """` the` becomes `·the`, 80 dashes become `-×80`, the first byte of `é` becomes `<C3>`."""
    text = token.decode("utf-8", errors=_HEXADECIMAL)
    shown: list[str] = []
    end = 0
    for run in _LONG_RUN.finditer(text):
        shown += [visible(text[end : run.start()]), _abbreviated(run[0], run[1] or run[2])]
        end = run.end()
    return "".join([*shown, visible(text[end:])])


def visible(text: str) -> str:
    """White space and unprintable characters, made visible."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in _VISIBLE:
        return _VISIBLE[character]
    return character if character.isprintable() else f"<U+{ord(character):04X}>"


def _abbreviated(run: str, unit: str) -> str:
    shown = visible(unit) if len(unit) == 1 else f"({visible(unit)})"
    return f"{shown}{_TIMES}{len(run) // len(unit)}"


def _as_hexadecimal(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(f"<{byte:02X}>" for byte in wrong), error.end


codecs.register_error(_HEXADECIMAL, _as_hexadecimal)
