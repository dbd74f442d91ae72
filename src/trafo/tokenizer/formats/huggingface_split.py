"""Split patterns <-> the `pre_tokenizer` of a `tokenizer.json`.

`ByteLevel` turns words into GPT-2's byte alphabet and by default splits them as GPT-2 does; other
patterns are a `Split` before it. `tokenizers` runs expressions with Oniguruma; those of our named
patterns mean the same there, a user's own may not.
"""

from typing import Any

import regex

from trafo.errors import FormatError, InputError
from trafo.tokenizer.patterns import PATTERN_NAMES, compile_pattern, pattern_name, pattern_regex


def pre_tokenizer_of_pattern(pattern: str) -> dict[str, Any]:
    """The `pre_tokenizer` that splits as the pattern does."""
    name = pattern_name(pattern)
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": name == "gpt2",
    }
    if name in ("gpt2", "none"):
        return byte_level
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern_regex(pattern)},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, byte_level]}


def pattern_of_pre_tokenizer(pre_tokenizer: Any, where: str) -> str:
    """The pattern's name if it has one, else its expression."""
    match _steps(pre_tokenizer):
        case [{"type": "ByteLevel"} as byte_level]:
            _check_byte_level(byte_level, where)
            return "gpt2" if byte_level.get("use_regex", True) else "none"
        case [{"type": "Split"} as split, {"type": "ByteLevel", "use_regex": False} as byte_level]:
            _check_byte_level(byte_level, where)
            return _pattern_of_split(split, where)
        case steps:
            kinds = [step.get("type") if isinstance(step, dict) else step for step in steps]
            raise FormatError(
                f"trafo does not support the pre-tokenizer {kinds}",
                where=where,
                hint="it reads ByteLevel, or Split before a ByteLevel with use_regex false",
            )


def _steps(pre_tokenizer: Any) -> list[Any]:
    if isinstance(pre_tokenizer, dict) and pre_tokenizer.get("type") == "Sequence":
        steps = pre_tokenizer.get("pretokenizers")
        return steps if isinstance(steps, list) else [steps]
    return [pre_tokenizer]


def _check_byte_level(byte_level: dict[str, Any], where: str) -> None:
    if byte_level.get("add_prefix_space", True):
        raise FormatError("trafo does not support add_prefix_space", where=where)


def _pattern_of_split(split: dict[str, Any], where: str) -> str:
    match split.get("pattern"):
        case {"Regex": str(expression)}:
            pattern = pattern_name(expression)
        case {"String": str(text)}:
            pattern = f"(?:{regex.escape(text)})"
        case other:
            raise FormatError(f"the Split pattern {other!r} is unknown", where=where)
    isolated = split.get("behavior") == "Isolated"
    # The inverse of removing what does not match: the same, if everything matches.
    only_matches = split.get("behavior") == "Removed" and split.get("invert")
    if not isolated and not (only_matches and pattern in PATTERN_NAMES):
        raise FormatError(
            f"trafo does not support the Split behavior {split.get('behavior')!r}", where=where
        )
    try:
        compile_pattern(pattern)
    except InputError as error:
        raise FormatError(error.what, where=where) from error
    return pattern
