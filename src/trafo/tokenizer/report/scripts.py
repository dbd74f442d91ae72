"""Bytes of text -> the script each belongs to: Latin, Han, digits, emoji, ...

In: valid UTF-8. Out: for each byte the number of its character's kind, an index into `KINDS`. The
script is Unicode's own property (UAX #24), as the `regex` package knows it. What all scripts share
(Common and Inherited) is divided into spaces, signs, emoji and digits.
"""

from functools import cache

import numpy as np
import regex
from numpy.typing import NDArray

from trafo.tokenizer.kernels.arrays import Bytes

Kinds = NDArray[np.uint8]

# Those in use today. All others are counted together.
_SCRIPT_NAMES = """
    Adlam Arabic Armenian Balinese Bengali Bopomofo Braille Canadian_Aboriginal Cham Cherokee
    Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana
    Javanese Kannada Katakana Khmer Lao Latin Lisu Malayalam Meetei_Mayek Mongolian Myanmar
    New_Tai_Lue Nko Ol_Chiki Oriya Osage Sinhala Sundanese Syriac Tai_Le Tamil Telugu Thaana Thai
    Tibetan Tifinagh Vai Yi
"""
_SCRIPTS = _SCRIPT_NAMES.split()

# A token that mixes kinds counts for the last of them: ` 42` as digits, ` é` as Latin.
_NAMES = ["spaces", "signs", "emoji", "digits", *_SCRIPTS, "other_scripts", "special_tokens"]
KINDS = tuple(name.replace("_", " ") for name in _NAMES)
SPACES, SIGNS, SPECIAL = map(KINDS.index, ("spaces", "signs", "special tokens"))

# The first alternative that fits a character decides. Where one fits nothing that an earlier one
# does, it takes several characters at once.
_ALTERNATIVES = {
    "signs": r"\p{Script=Unknown}+",  # most of Unicode is not assigned yet
    **{script: rf"\p{{Script={script}}}+" for script in _SCRIPTS},
    "spaces": r"\s",
    "emoji": r"\p{Emoji_Presentation}",
    "digits": r"\p{N}",
    "other_scripts": r"[^\p{Script=Common}\p{Script=Inherited}]",
}
_NUM_CODE_POINTS = 0x110000
_SURROGATES = slice(0xD800, 0xE000)


def classify_bytes(data: Bytes) -> Kinds:
    """Return the kind of the character that each byte is a part of."""
    code_points = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
    widths = np.ones(len(code_points), np.uint8)
    for first_wider in (0x80, 0x800, 0x10000):  # UTF-8 takes 2, 3 and 4 bytes from here on
        widths += code_points >= first_wider
    return np.repeat(_kind_of_code_point()[code_points], widths)


@cache
def _kind_of_code_point() -> Kinds:
    """Make a table of all of Unicode, at the first use."""
    code_points = np.delete(np.arange(_NUM_CODE_POINTS, dtype=np.uint32), _SURROGATES)
    everything = code_points.tobytes().decode("utf-32-le")
    table = np.full(_NUM_CODE_POINTS, SIGNS, np.uint8)
    runs = "|".join(f"(?P<{name}>{expression})" for name, expression in _ALTERNATIVES.items())
    for run in regex.finditer(runs, everything):
        table[ord(run[0][0]) : ord(run[0][-1]) + 1] = _NAMES.index(run.lastgroup)
    return table
