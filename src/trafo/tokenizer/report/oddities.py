"""Tokens that show what was wrong with the text they were learned from.

Mojibake: UTF-8 that was once read in another encoding and saved like that, `Ã©` for `é`, `â€™` for
`’`. Boilerplate: long repetitions of a sign, and fragments of addresses and markup, which say more
about how the text was gathered than about the language. Both are heuristics.
"""

import regex

_SHORTEST_REPETITION = 8  # characters
_REPETITION = regex.compile(r"(?s)(.{1,4}?)\1{2,}")

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

_ADDRESS_OR_MARKUP = regex.compile(
    r"://|\bhttps?\b|\bwww\b|\.(?:com|org|net|html?|php|jpe?g|png|gif)\b"
    r"|</|/>|<!--|-->|</?(?:html|head|body|div|span|table|tr|td|ul|li|img|br|script)\b"
    r"|\b(?:html|href|src=|nbsp)|&(?:nbsp|amp|quot|lt|gt|#\d+)\b",
    regex.IGNORECASE,
)


def is_mojibake(token: bytes) -> bool:
    """Whether the token holds characters that come from a wrong decoding."""
    return _MOJIBAKE.search(token.decode("utf-8", errors="ignore")) is not None


def is_boilerplate(token: bytes) -> bool:
    """Whether the token is a fragment of an address or of markup, or repeats a few characters."""
    text = token.decode("utf-8", errors="ignore").strip(" ")
    if len(text) >= _SHORTEST_REPETITION and _REPETITION.fullmatch(text):
        return True
    return _ADDRESS_OR_MARKUP.search(text) is not None
