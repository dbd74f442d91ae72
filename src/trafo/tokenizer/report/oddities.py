"""Tokens that show what was wrong with the text they were learnt from.

Mojibake: UTF-8 that was once read in another encoding and saved like that, `Ã©` for `é`, `â€™` for
`’`. Boilerplate: long repetitions of a sign, and pieces of addresses and markup, which say more
about how the text was gathered than about the language. Both are heuristics: the rules below are
all there is to them.
"""

import regex

_SHORTEST_REPETITION = 8  # characters

# Bytes 80..BF as Windows-1252 shows them (Latin-1 shows the lower half as control characters).
_CONTINUATION = bytes(range(0x80, 0xC0)).decode("cp1252", errors="ignore") + "".join(
    map(chr, range(0x80, 0xC0))
)
_CONTINUATION_SIGN = "".join(c for c in _CONTINUATION if not c.isalpha())

_MOJIBAKE = regex.compile(
    "|".join(
        [
            # Two bytes. Behind other letters than these two, only signs: Czech has `Úž`.
            rf"[ÂÃ][{regex.escape(_CONTINUATION)}]",
            rf"[Ä-ß][{regex.escape(_CONTINUATION_SIGN)}]",
            # Three and four bytes.
            rf"[à-ï][{regex.escape(_CONTINUATION)}]{{2}}",
            rf"[ð-ô][{regex.escape(_CONTINUATION)}]{{3}}",
            # What is left of these where a split pattern parts letters from signs.
            r"â€|ï¿|¿½|ðŸ|€[™œ˜“”¦¢]|ÃÂ|ÂÃ",
            # Never typed by anybody: U+FFFD and control characters (but not "next line").
            r"[\ufffd\u0080-\u0084\u0086-\u009f]",
        ]
    )
)

_MARKUP = regex.compile(
    r"https?|www\.?|:/|\.(?:com|org|net|html?|php|jpe?g|png|gif)\b|\bhtml\b"
    r"|</|/>|=\"|\bhref\b|\bsrc=|&(?:nbsp|amp|quot|lt|gt|#\d+);?|\bnbsp\b|<!--|-->|<\?"
    r"|</?(?:div|span|br|td|tr|li|ul|img|p|a)\b|\[\[|\]\]|\{\{|\}\}",
    regex.IGNORECASE,
)
_REPETITION = regex.compile(r"(?s)(.{1,4}?)\1+")


def is_mojibake(token: bytes) -> bool:
    """Whether the token holds characters that come from a wrong decoding."""
    return _MOJIBAKE.search(token.decode("utf-8", errors="ignore")) is not None


def is_boilerplate(token: bytes) -> bool:
    """Whether the token is a piece of an address or of markup, or one to four characters repeated."""
    text = token.decode("utf-8", errors="ignore").strip(" ")
    if len(text) >= _SHORTEST_REPETITION and _REPETITION.fullmatch(text):
        return True
    return _MARKUP.search(text) is not None
