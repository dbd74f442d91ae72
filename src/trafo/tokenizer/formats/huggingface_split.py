r"""Split patterns <-> the `pre_tokenizer` of a `tokenizer.json`.

`ByteLevel` turns words into GPT-2's byte alphabet and by default splits them as GPT-2 does; other
patterns are a `Split` before it. `tokenizers` runs expressions with Oniguruma; those of our named
patterns mean the same there, others are checked (`oniguruma.py`).

Several steps split in turn (`patterns.THEN`). The usual sequence, digits that are split off first
(`Digits`, or a `Split`) and a named pattern for the text between them, is one expression, which is
faster: the digits, or the pattern without them, to which a digit is like the end of the text.
(`Digits` follows a newer Unicode than the rest of `tokenizers`, with 13 more digits, from U+11DE0
and U+16FF4 on.)
"""

from typing import Any

import regex

from trafo.errors import FormatError, InputError
from trafo.tokenizer.formats.oniguruma import check_read_alike
from trafo.tokenizer.patterns import (
    PATTERN_NAMES,
    THEN,
    compile_pattern,
    pattern_name,
    pattern_regex,
)

_DIGITS = (r"\p{N}", r"\p{N}+", r"\p{N}{1,3}")


def pre_tokenizer_of_pattern(pattern: str, where: str) -> dict[str, Any]:
    """The `pre_tokenizer` that splits as the pattern does."""
    name = pattern_name(pattern)
    if name in ("gpt2", "none"):
        return byte_level(use_regex=name == "gpt2")
    steps = name.split(THEN)
    for step in steps:
        if step not in PATTERN_NAMES:
            check_read_alike(step, where)
    splits = [
        {
            "type": "Split",
            "pattern": {"Regex": pattern_regex(step)},
            "behavior": "Isolated",
            "invert": False,
        }
        for step in steps
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level(use_regex=False)]}


def byte_level(use_regex: bool = True) -> dict[str, Any]:
    """The step that turns words into the byte alphabet; with `use_regex` it splits, too."""
    switches = {"add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **switches}


def pattern_of_pre_tokenizer(pre_tokenizer: Any, where: str) -> str:
    """The pattern's name if it has one, else its expression."""
    steps = _steps(pre_tokenizer)
    if not steps or _kind(steps[-1]) != "ByteLevel":
        raise _unsupported(steps, where)
    if steps[-1].get("add_prefix_space", True):
        raise FormatError("trafo does not support add_prefix_space", where=where)
    patterns = [_pattern_of_step(step, steps, where) for step in steps[:-1]]
    if steps[-1].get("use_regex", True):
        patterns.append("gpt2")
    match patterns:
        case []:
            return "none"
        case [pattern]:
            return pattern
        case [digits, pattern] if digits in _DIGITS and pattern in PATTERN_NAMES:
            return between_digits(digits, pattern)
        case [pattern, again] if pattern == again and pattern in PATTERN_NAMES:
            return pattern
    return THEN.join(patterns)


def between_digits(digits: str, name: str) -> str:
    """First the digits, then a named pattern on the text between them, as one expression."""
    if name == "none":
        return digits
    expression = pattern_regex(name)
    if digits == r"\p{N}+" and r"|\p{N}{1,3}" in expression:
        digits = r"\p{N}{1,3}"  # the pattern then splits the run of digits again
    for with_digits, without in (
        (r"| ?\p{N}+", ""),
        (r"|\p{N}{1,3}", ""),
        (r"\s+(?!\S)", r"\s+(?![^\s\p{N}])"),
        (r"|\S+", r"|[^\s\p{N}]+"),
    ):
        expression = expression.replace(with_digits, without)
    return f"{digits}|{expression}"


def _steps(pre_tokenizer: Any) -> list[Any]:
    """Sequences, also inside others, as one list of steps."""
    if _kind(pre_tokenizer) != "Sequence":
        return [pre_tokenizer]
    steps = pre_tokenizer.get("pretokenizers")
    if not isinstance(steps, list):
        return [steps]
    return [one for step in steps for one in _steps(step)]


def _kind(step: Any) -> Any:
    return step.get("type") if isinstance(step, dict) else step


def _pattern_of_step(step: Any, steps: list[Any], where: str) -> str:
    match step:
        case {"type": "Digits"}:
            return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
        case {"type": "Split"}:
            return _pattern_of_split(step, where)
    raise _unsupported(steps, where)


def _pattern_of_split(split: dict[str, Any], where: str) -> str:
    match split.get("pattern"):
        case {"Regex": str(expression)}:
            # A plain word is an expression here, not a name of ours.
            is_word = regex.fullmatch(r"[\w-]+", expression)
            pattern = f"(?:{expression})" if is_word else pattern_name(expression)
        case {"String": str(text)} if text:
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
    if pattern not in PATTERN_NAMES:
        check_read_alike(pattern, where)
    return pattern


def _unsupported(steps: list[Any], where: str) -> FormatError:
    return FormatError(
        f"trafo does not support the pre-tokenizer {[_kind(step) for step in steps]}",
        where=where,
        hint="it reads Split and Digits, then ByteLevel",
    )
