r"""Split patterns <-> the `pre_tokenizer` of Hugging Face's `tokenizer.json`.

`ByteLevel` turns words into GPT-2's byte alphabet and by default splits them as GPT-2 does. Other
patterns are a `Split` before it. Several steps split in turn (`patterns.THEN`). The usual sequence,
digits that are split off first (`Digits`, or a `Split`) and a named pattern for the text between
them, is one expression, which is faster: the digits, or the pattern without them, to which a digit
is like the end of the text. (`Digits` follows a newer Unicode than the rest of `tokenizers`, with
13 more digits, from U+11DE0 and U+16FF4 on.)

`tokenizers` runs expressions with Oniguruma, trafo with `regex`, and the same spelling often has
two meanings: `^` and `$` match at lines or only at the ends of the text, `\h` is a hexadecimal
digit or a blank, `{1,3}+` a repetition or a possessive one, `(?i:ss)` matches `ß` or does not,
`[a[b]]` is a set of sets or not, and an empty match cuts the text or does not. The named patterns
mean the same to both. Any other expression may hold only what `_ALIKE` lists, which a test compares
with `tokenizers`. All else is refused.
"""

from typing import Any

import regex

from trafo.errors import FormatError, InputError
from trafo.tokenizer.patterns import (
    PATTERN_NAMES,
    THEN,
    compile_pattern,
    pattern_name,
    pattern_regex,
)

_DIGITS = (r"\p{N}", r"\p{N}+", r"\p{N}{1,3}")

_CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs"
_SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Lao Latin Thai"
_CLASS = rf"\\[pP]\{{(?:{'|'.join(f'{_CATEGORIES} {_SCRIPTS}'.split())})\}}|\\[sSdD]"
_CHARACTER = r"(?:\\[tnrf]|\\x[0-7][0-9a-fA-F]|\\u[0-9a-fA-F]{4}|\\\W|[^\\])"
_LETTERS = r"(?:\[[a-zA-Z]+\]|[a-zA-Z])"

# One piece of an expression that both read alike, with its repetition. A letter in any case is of
# ASCII and none of a pair that is also one character (ﬁ, ß, ...). A range in a set is between two
# characters.
_ALIKE = regex.compile(
    rf"""
    (?<opening> \((?:\?(?:[:>]|(?<lookaround><?[=!])))?+ (?!\?) ) | (?<or> \| )
    | (?:
        (?<closing> \) )
        | \(\?i: (?!(?i:[^)]*(?:f[fil]|s[st]))) '?{_LETTERS}*+(?:\|'?{_LETTERS}++)*+ \)
        | \[\^?+ (?!\]) (?:
            (?!\[|\]|&&) (?:
              (?:{_CLASS}) (?!-[^]]) | {_CHARACTER} (?: (?!-[^]]) | -(?!\[){_CHARACTER} ) )
          )++ \]
        | {_CLASS}
        | (?![*+?^$|(){{}}[\]]){_CHARACTER}
      )
      (?<repetition> (?: [*+?][?+]?+ | \{{\d+\}} | \{{(?:\d+,\d*|,\d+)\}}\??+ ) (?![*+?{{]) )?+
    """,
    regex.VERBOSE,
)


def read_pre_tokenizer(pre_tokenizer: Any, where: str) -> str:
    """Return the pattern that splits as a `pre_tokenizer` does, by its name if it has one."""
    steps = _flatten(pre_tokenizer)
    if not steps or _kind(steps[-1]) != "ByteLevel":
        raise _unsupported(steps, where)
    if steps[-1].get("add_prefix_space", True):
        raise FormatError("trafo does not support add_prefix_space", where=where)
    patterns = [_read_step(step, steps, where) for step in steps[:-1]]
    if steps[-1].get("use_regex", True):
        patterns.append("gpt2")
    match patterns:
        case []:
            return "none"
        case [digits, pattern] if digits in _DIGITS and pattern in PATTERN_NAMES:
            return split_digits_first(digits, pattern)
        case [pattern, again] if pattern == again and pattern in PATTERN_NAMES:
            return pattern
    return THEN.join(patterns)


def write_pre_tokenizer(pattern: str, where: str) -> dict[str, Any]:
    """Return the `pre_tokenizer` that splits as a pattern does."""
    name = pattern_name(pattern)
    if name in ("gpt2", "none"):
        return make_byte_level(use_regex=name == "gpt2")
    steps = name.split(THEN)
    for step in steps:
        check_read_alike(step, where)
    how = {"behavior": "Isolated", "invert": False}
    splits = [{"type": "Split", "pattern": {"Regex": pattern_regex(step)}, **how} for step in steps]
    return {"type": "Sequence", "pretokenizers": [*splits, make_byte_level(use_regex=False)]}


def make_byte_level(use_regex: bool = True) -> dict[str, Any]:
    """Return the step that turns words into the byte alphabet, and with `use_regex` splits, too."""
    switches = {"add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **switches}


def split_digits_first(digits: str, name: str) -> str:
    """Return one expression for digits first, then a named pattern on the text between them."""
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


def check_read_alike(pattern: str, where: str) -> None:
    """Refuse an expression that Oniguruma and `regex` may read in different ways."""
    if pattern in PATTERN_NAMES:
        return
    try:
        compile_pattern(pattern)
    except InputError as error:
        raise FormatError(error.what, where=where) from error
    position = 0
    # An empty text shows what can match nothing, once every lookaround can.
    pieces: list[str] = []
    groups: list[int] = []
    problem = ""
    while position < len(pattern) and not problem:
        piece = _ALIKE.match(pattern, position)
        if piece is None:
            problem = pattern[position : position + 2]
            break
        position = piece.end()
        start = groups.pop() if piece["closing"] else len(pieces)
        if piece["opening"]:
            groups.append(start)
        repetition = piece["repetition"] or ""
        pieces.append("(?:|" if piece["lookaround"] else piece[0].removesuffix(repetition))
        if repetition and regex.fullmatch("".join(pieces[start:]), ""):
            problem = repetition
        pieces.append(repetition)
    if not problem and regex.fullmatch("".join(pieces), ""):
        problem = "a match of nothing"
    if problem:
        what = f"trafo and Oniguruma may not read {problem!r} alike"
        hint = "see tokenizer/formats/pre_tokenizer.py for what is read alike"
        raise FormatError(f"in the expression {pattern!r}, {what}", where=where, hint=hint)


def _flatten(pre_tokenizer: Any) -> list[Any]:
    """List the steps of a sequence, also of those inside others."""
    if _kind(pre_tokenizer) != "Sequence":
        return [pre_tokenizer]
    steps = pre_tokenizer.get("pretokenizers")
    if not isinstance(steps, list):
        return [steps]
    return [one for step in steps for one in _flatten(step)]


def _kind(step: Any) -> Any:
    return step.get("type") if isinstance(step, dict) else step


def _read_step(step: Any, steps: list[Any], where: str) -> str:
    match step:
        case {"type": "Digits"}:
            return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
        case {"type": "Split", "pattern": {"Regex": str(expression)}}:
            # A plain word is an expression here, not a name of ours.
            is_word = regex.fullmatch(r"[\w-]+", expression)
            pattern = f"(?:{expression})" if is_word else pattern_name(expression)
        case {"type": "Split", "pattern": {"String": str(text)}} if text:
            pattern = f"(?:{regex.escape(text)})"
        case {"type": "Split"}:
            raise FormatError(f"the Split pattern {step.get('pattern')!r} is unknown", where=where)
        case _:
            raise _unsupported(steps, where)
    behavior = step.get("behavior")
    # The inverse of removing what does not match: the same, if everything matches.
    only_matches = behavior == "Removed" and step.get("invert") and pattern in PATTERN_NAMES
    if behavior != "Isolated" and not only_matches:
        raise FormatError(f"trafo does not support the Split behavior {behavior!r}", where=where)
    check_read_alike(pattern, where)
    return pattern


def _unsupported(steps: list[Any], where: str) -> FormatError:
    return FormatError(
        f"trafo does not support the pre-tokenizer {[_kind(step) for step in steps]}",
        where=where,
        hint="it reads Split and Digits, then ByteLevel",
    )
