"""Tokens one by one: as people can read them, and which of them are odd.

Unreachable tokens waste a slot in the vocabulary and in the model, as no text becomes them:

 1. their bytes occur in no valid UTF-8: BPE starts from 256 bytes, of which UTF-8 never uses 13;
 2. or BPE on their bytes ends with several tokens. Then they never appear inside a longer word
    either: where a token is in a result, no merge crossed its borders, so the merges inside were
    those that happen to it alone. With `ignore_merges`, this does not apply to a token that the
    pattern leaves whole on its own;
 3. or the pattern cuts through them, alone and between all sorts of neighbours.

Others show what was wrong with the text they were learned from. Mojibake is UTF-8 that was once
read in another encoding and saved like that, `Ã©` for `é`, `â€™` for `’`. Boilerplate is long
repetitions of a sign, and fragments of addresses and markup, which say more about how the text was
gathered than about the language. Both are heuristics.
"""

from itertools import accumulate, product

import numpy as np
import regex

from trafo.tokenizer.encoding import Merges
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.kernels.bpe import NO_ID
from trafo.tokenizer.patterns import compile_pattern, split_words

# Each class of characters that the named patterns tell apart, and what makes `'s`, `'ll` and `'re`.
_NEIGHBOURS = ("", "a", "A", "s", "l", "e", "1", "!", "'", " ", "\n")

# One of these completes the last character, whatever it lacks.
_ENDINGS = (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0\x80", b"\x90\x80\x80")
# The bytes 80..BF, which continue a character in UTF-8, as Windows-1252 and as Latin-1 show them.
_CONTINUATION = bytes(range(0x80, 0xC0))
_CONTINUED = _CONTINUATION.decode("cp1252", errors="ignore") + _CONTINUATION.decode("latin-1")
_ANY = regex.escape(_CONTINUED)
_SIGN = regex.escape("".join(character for character in _CONTINUED if not character.isalpha()))

_MOJIBAKE = regex.compile(
    "|".join(
        [
            # Two bytes. After other letters than these two, only signs: Czech has `Úž`.
            rf"[ÂÃ][{_ANY}]",
            rf"[Ä-ß][{_SIGN}]",
            # Three and four bytes.
            rf"[à-ï][{_ANY}]{{2}}",
            rf"[ð-ô][{_ANY}]{{3}}",
            # What is left of these where a split pattern separates letters from signs.
            "â€|ï¿|¿½|ðŸ|ÃÂ|ÂÃ|€[™œ\u02dc“”¦¢]",
            # Never typed: U+FFFD and control characters (except "next line", which is used).
            r"[\ufffd\u0080-\u0084\u0086-\u009f]",
        ]
    )
)

_MIN_REPETITION = 8  # characters
_REPETITION = regex.compile(r"(?s)(.{1,4}?)\1{2,}")
_ADDRESS_OR_MARKUP = regex.compile(
    r"://|\bhttps?\b|\bwww\b|\.(?:com|org|net|html?|php|jpe?g|png|gif)\b"
    r"|</|/>|<!--|-->|</?(?:html|head|body|div|span|table|tr|td|ul|li|img|br|script)\b"
    r"|\b(?:html|href|src=|nbsp)|&(?:nbsp|amp|quot|lt|gt|#\d+)\b",
    regex.IGNORECASE,
)

_PICTURES = {" ": "·", "\n": "↵", "\r": "␍", "\t": "→", "\u00a0": "⍽"}
_LONG_RUN = regex.compile(r"(?s)(.)\1{11,}|(.{2,4}?)\2{5,}")


def format_token(token: bytes) -> str:
    """Turn ` the` into `·the`, 80 dashes into `-×80`, the first byte of `é` into `<C3>`."""
    text = token.decode("utf-8", errors="surrogateescape")
    # A lone surrogate is a byte that belongs to no whole character.
    text = regex.sub(r"[\udc80-\udcff]", lambda half: f"<{ord(half[0]) - 0xDC00:02X}>", text)
    shown: list[str] = []
    end = 0
    for run in _LONG_RUN.finditer(text):
        unit = run[1] or run[2]
        unit_shown = make_visible(unit) if len(unit) == 1 else f"({make_visible(unit)})"
        times = f"\N{MULTIPLICATION SIGN}{len(run[0]) // len(unit)}"
        shown += [make_visible(text[end : run.start()]), unit_shown, times]
        end = run.end()
    return "".join([*shown, make_visible(text[end:])])


def make_visible(text: str) -> str:
    """Replace white space and unprintable characters by what people can see."""
    return "".join(
        _PICTURES.get(
            character, character if character.isprintable() else f"<U+{ord(character):04X}>"
        )
        for character in text
    )


def is_mojibake(token: bytes) -> bool:
    """Tell whether the token holds characters that come from a wrong decoding."""
    return _MOJIBAKE.search(token.decode("utf-8", errors="ignore")) is not None


def is_boilerplate(token: bytes) -> bool:
    """Tell whether the token is a piece of an address or markup, or repeats a few characters."""
    text = token.decode("utf-8", errors="ignore").strip(" ")
    if len(text) >= _MIN_REPETITION and _REPETITION.fullmatch(text):
        return True
    return _ADDRESS_OR_MARKUP.search(text) is not None


def find_unreachable(spec: TokenizerSpec) -> dict[int, str]:
    """Return the reason for each unreachable id. Special tokens are always reachable."""
    tokens = spec.ordinary_tokens()
    made = _find_made_by_merges(list(tokens), Merges.from_spec(spec))
    reasons = {i: _explain(token, token in made, spec) for token, i in tokens.items()}
    return {i: reason for i, reason in sorted(reasons.items()) if reason}


def _explain(token: bytes, is_made: bool, spec: TokenizerSpec) -> str | None:
    text = _decode(token)  # None if it holds a part of a character, which no pattern splits
    if text is None and not occurs_in_utf8(token):
        return "not UTF-8"
    if spec.ignore_merges and text is not None and split_words(text, spec.pattern) == [text]:
        return None
    if not is_made:
        return "not made by the merges"
    if text is not None and not _fits_into_word(text, spec.pattern):
        return "cut by the pattern"
    return None


def occurs_in_utf8(token: bytes) -> bool:
    """Tell whether valid UTF-8 can hold the bytes, which may begin and end inside a character."""
    from_start = token[:3].lstrip(_CONTINUATION) + token[3:]
    return any(_decode(from_start + ending) is not None for ending in _ENDINGS)


def _decode(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def _find_made_by_merges(tokens: list[bytes], merges: Merges) -> set[bytes]:
    """Return the tokens that BPE on their own bytes ends with."""
    known = {byte for byte in range(256) if merges.byte_ids[byte] != NO_ID}
    tokens = [token for token in tokens if known.issuperset(token)]
    text = np.frombuffer(b"".join(tokens), np.uint8)
    ends = np.cumsum([len(token) for token in tokens], dtype=np.int64)
    numbers = np.diff(merges.encode_each(text, ends)[1], prepend=0).tolist()
    return {token for token, number in zip(tokens, numbers, strict=True) if number == 1}


def _fits_into_word(text: str, pattern: str) -> bool:
    """Tell whether the pattern ever leaves the text whole."""
    if all(step.fullmatch(text) for step in compile_pattern(pattern)):  # the usual case, at once
        return True
    for before, after in product(_NEIGHBOURS, _NEIGHBOURS):
        start, stop = len(before), len(before + text)
        ends = accumulate(map(len, split_words(before + text + after, pattern)))
        if not any(start < end < stop for end in ends):
            return True
    return False
