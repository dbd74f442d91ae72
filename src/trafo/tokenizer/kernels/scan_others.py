"""The other split patterns, one character at a time: cl100k (GPT-4, Llama 3), o200k, white space.

Each `_word_end_...` says where the word that starts here ends, trying the alternatives of the
regular expression in `patterns.py` in their order.
"""

import numpy as np

from trafo.runtime.kernels import subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends
from trafo.tokenizer.kernels.bits import ascii_masks, range_mask, trailing_zeros
from trafo.tokenizer.kernels.scan_gpt2 import (
    APOSTROPHE,
    BLANK,
    CARRIAGE_RETURN,
    LINE_FEED,
    SLASH,
    D,
    E,
    L,
    M,
    R,
    S,
    T,
    V,
)
from trafo.tokenizer.kernels.unicode_classes import (
    LETTER,
    LOWER,
    MARK,
    NEWLINE,
    NUMBER,
    OTHER,
    SPACE,
    UPPER,
)
from trafo.tokenizer.kernels.utf8 import character_at

GPT2, GPT4, GPT4O, WHITESPACE, NONE = range(5)

_LONG_S = 0x17F  # ſ is s when case is ignored
_SMALL_A, _SMALL_Z = b"az"
_ONE = np.uint64(1)


@subkernel
def _class_at(data: Bytes, classes: Bytes, index: int) -> tuple[int, int]:
    character, length = character_at(data, index)
    return np.int64(classes[character]), length


@subkernel
def _is_letter(character_class: int) -> bool:
    return UPPER <= character_class <= LETTER


@subkernel
def _letters_end(data: Bytes, classes: Bytes, start: int, stop: int) -> int:
    r"""\p{L}*, the ASCII ones up to 64 at a time."""
    while start < stop:
        if start + 64 <= data.size:
            letters, _, _, _, _, high = ascii_masks(data, start)
            run = trailing_zeros(~letters)
            start += run
            if start >= stop:
                return stop
            if run == 64:
                continue
            if high >> np.uint64(run) & _ONE == 0:
                return start
        character_class, length = _class_at(data, classes, start)
        if not _is_letter(character_class):
            return start
        start += length
    return start


@subkernel
def _small_letters_end(data: Bytes, start: int, stop: int) -> int:
    """Where the run of a to z that begins at start ends."""
    while start + 64 <= data.size and start < stop:
        run = trailing_zeros(~range_mask(data, start, _SMALL_A, _SMALL_Z))
        start += run
        if run < 64:
            break
    return min(start, stop)


@subkernel
def _run_end(data: Bytes, classes: Bytes, start: int, stop: int, low: int, high: int) -> int:
    """Where the run of characters of class low..high that begins at start ends."""
    while start < stop:
        character_class, length = _class_at(data, classes, start)
        if not low <= character_class <= high:
            break
        start += length
    return start


@subkernel
def _contraction_any_case(data: Bytes, apostrophe: int, stop: int) -> int:
    """As contraction_length, for (?i:'s|'t|'re|'ve|'m|'ll|'d)."""
    if apostrophe + 1 >= stop or data[apostrophe] != APOSTROPHE:
        return 0
    first = data[apostrophe + 1] | 0x20
    if first == S or first == D or first == M or first == T:
        return 2 if data[apostrophe + 1] < 0x80 else 0
    if character_at(data, apostrophe + 1)[0] == _LONG_S:
        return 3
    if apostrophe + 2 >= stop:
        return 0
    second = data[apostrophe + 2] | 0x20
    if (first == L and second == L) or (first == V and second == E) or (first == R and second == E):
        return 3
    return 0


@subkernel
def _number_end(data: Bytes, classes: Bytes, start: int, stop: int) -> int:
    r"""\p{N}{1,3}"""
    for _ in range(3):
        if start >= stop:
            break
        character_class, length = _class_at(data, classes, start)
        if character_class != NUMBER:
            break
        start += length
    return start


@subkernel
def _symbols_end(data: Bytes, classes: Bytes, start: int, stop: int, slash: bool) -> int:
    r"""?[^\s\p{L}\p{N}]+[\r\n]*, with / among the trailing ones if asked for; start if none."""
    position = start + 1 if data[start] == BLANK else start
    first = position
    while position < stop:
        character_class, length = _class_at(data, classes, position)
        if character_class != OTHER and character_class != MARK:
            break
        position += length
    if position == first:
        return start
    while position < stop:
        byte = data[position]
        if byte != CARRIAGE_RETURN and byte != LINE_FEED and not (slash and byte == SLASH):
            break
        position += 1
    return position


@subkernel
def _spaces_end(data: Bytes, classes: Bytes, start: int, stop: int, newlines: bool) -> int:
    r"""\s*[\r\n]+ (if newlines), else \s+(?!\S), else \s+"""
    position = last_character = start
    after_newline = start
    while position < stop:
        character_class, length = _class_at(data, classes, position)
        if character_class < SPACE:
            break
        last_character = position
        position += length
        if character_class == NEWLINE:
            after_newline = position
    if newlines and after_newline > start:
        return after_newline
    if position == stop or last_character == start:
        return position
    return last_character


@subkernel
def _word_end_gpt4(data: Bytes, classes: Bytes, start: int, stop: int) -> int:
    length = _contraction_any_case(data, start, stop)
    if length:
        return start + length
    character_class, length = _class_at(data, classes, start)
    if _is_letter(character_class):
        return _letters_end(data, classes, start + length, stop)
    if character_class == NUMBER:
        return _number_end(data, classes, start, stop)
    if character_class != NEWLINE:
        end = _letters_end(data, classes, start + length, stop)
        if end > start + length:
            return end
    end = _symbols_end(data, classes, start, stop, False)
    if end > start:
        return end
    return _spaces_end(data, classes, start, stop, True)


@subkernel
def _cased_word_end(data: Bytes, classes: Bytes, start: int, stop: int) -> tuple[int, bool]:
    r"""[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ as far as it matches.

    Returns where it ends and whether it matches. If it does not (capitals only), the end is that
    of the capitals: the second alternative, [\p{Lu}...]+[\p{Ll}...]*. Letters without case and
    marks are in both classes; the second part needs one character, so the first gives back as
    many as it takes: up to the last character that has no case.
    """
    position = start
    after_caseless = start
    while position < stop:
        character_class, length = _class_at(data, classes, position)
        if character_class != UPPER and character_class != LETTER and character_class != MARK:
            break
        position += length
        if character_class != UPPER:
            after_caseless = position
    lower_end = _small_letters_end(data, position, stop)
    while lower_end < stop:
        character_class, length = _class_at(data, classes, lower_end)
        if character_class != LOWER and character_class != LETTER and character_class != MARK:
            break
        lower_end += length
    if lower_end > position:
        return lower_end, True
    if after_caseless > start:
        return after_caseless, True
    return position, False


@subkernel
def _word_end_gpt4o(data: Bytes, classes: Bytes, start: int, stop: int) -> int:
    character_class, length = _class_at(data, classes, start)
    # One leading character that is not a letter, number or newline may belong to the word.
    lead = 0
    if not _is_letter(character_class) and character_class != NUMBER and character_class != NEWLINE:
        lead = length
    end, matched = _cased_word_end(data, classes, start + lead, stop)
    if not matched and lead and character_class == MARK:
        # The lead is itself a mark, so without a lead the first alternative matches just it.
        end, matched = _cased_word_end(data, classes, start, stop)
    if matched or end > start + lead:
        return end + _contraction_any_case(data, end, stop)
    if character_class == NUMBER:
        return _number_end(data, classes, start, stop)
    end = _symbols_end(data, classes, start, stop, True)
    if end > start:
        return end
    return _spaces_end(data, classes, start, stop, True)


@subkernel
def _word_end_whitespace(data: Bytes, classes: Bytes, start: int, stop: int) -> int:
    if _class_at(data, classes, start)[0] >= SPACE:
        return _run_end(data, classes, start, stop, SPACE, NEWLINE)
    return _run_end(data, classes, start, stop, OTHER, NUMBER)


@subkernel
def scan_others(
    pattern: int, data: Bytes, classes: Bytes, start: int, stop: int, ends: Ends, count: int
) -> tuple[int, int]:
    """As `scan_gpt2`, for the patterns that are scanned one character at a time."""
    while start < stop and count + 1 < ends.size:  # one for a special token
        if pattern == GPT4:
            start = _word_end_gpt4(data, classes, start, stop)
        elif pattern == GPT4O:
            start = _word_end_gpt4o(data, classes, start, stop)
        elif pattern == WHITESPACE:
            start = _word_end_whitespace(data, classes, start, stop)
        else:
            start = stop
        ends[count] = start
        count += 1
    return count, start
