"""GPT-2's split pattern, 64 bytes at a time.

    '(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

Read as a rule for where words start, with every character in one of the classes letter, number,
white space, other:

  1. A character that is not white space starts a word if its class differs from the one before,
     unless the character before is a blank, which then starts that word in its place.
  2. A white space character starts a word if the one before is not white space, or if the next
     exists and is not white space (the last of a run goes, if it is a blank, with what follows).
  3. An apostrophe that starts a word and is followed by s, d, m, t, ll, ve or re takes just these
     with it, and the next word starts right after.

Rules 1 and 2 only look at neighbours, so on bit masks (bit i for byte i) they are a handful of
shifts and ands, for 64 bytes at once:

    text              I ' m   i n .          (shown from left to right, so a shift << 1 moves right)
    letters           1 . 1 . 1 1 .
    letters << 1      . 1 . 1 . 1 1
    differs           1 . 1 . 1 . .          letters & ~(letters << 1)
    not after blank   1 . 1 . . . .          and not (blanks << 1)

The bit that a shift drops belongs to the next 64 bytes and is carried there (`letter_before`). Then
the words' ends are the places of the 1 bits, taken out one by one with a count of trailing zeros.
ASCII masks come from vector compares (`bits.py`), others from one character at a time.
"""

import numpy as np

from trafo.runtime.kernels import subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends
from trafo.tokenizer.kernels.bits import ascii_masks, count_ones, put, trailing_zeros
from trafo.tokenizer.kernels.unicode_classes import LETTER, NEWLINE, NUMBER, SPACE, UPPER
from trafo.tokenizer.kernels.utf8 import character_at

# As numbers: `ord` inside a kernel takes numba long to compile.
BLANK, APOSTROPHE, LINE_FEED, CARRIAGE_RETURN, SLASH = b" '\n\r/"
D, E, L, M, R, S, T, V = b"delmrstv"

WIDTH = 64  # bytes looked at together
_AT_ONCE = 8  # ends written before asking whether there are more; those too many do no harm
ROOM = WIDTH + 2 + _AT_ONCE  # free ends that 64 bytes may need
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@subkernel
def contraction_length(data: Bytes, apostrophe: int, stop: int) -> int:
    """Return how many bytes 's, 'd, 'm, 't, 'll, 've or 're takes, or 0 if there is none."""
    if apostrophe + 1 >= stop:
        return 0
    first = data[apostrophe + 1]
    if first == S or first == D or first == M or first == T:
        return 2
    if apostrophe + 2 >= stop:
        return 0
    second = data[apostrophe + 2]
    if (first == L and second == L) or (first == V and second == E) or (first == R and second == E):
        return 3
    return 0


@subkernel
def _is_space(data: Bytes, classes: Bytes, index: int) -> bool:
    character_class = classes[character_at(data, index)[0]]
    return character_class == SPACE or character_class == NEWLINE


@subkernel
def _masks_by_character(
    data: Bytes, classes: Bytes, start: int, stop: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, int]:
    """The masks of up to 64 bytes from start, whole characters only, of any script.

    Returns letters, numbers, white space, blanks, apostrophes, first bytes of characters, white
    space that something else follows (rule 2), and the number of bytes covered. The later bytes
    of a character carry its class too, so that a shift by one finds the class before.
    """
    letters = numbers = spaces = blanks = apostrophes = firsts = last_spaces = _ZERO
    previous_space = _ZERO  # the first byte of the character before, if that is white space
    index = start
    while index < stop:
        character, length = character_at(data, index)
        if index + length > start + WIDTH:
            break
        first = _ONE << np.uint64(index - start)
        every = ((_ONE << np.uint64(length)) - _ONE) << np.uint64(index - start)
        character_class = classes[character]
        firsts |= first
        if character_class >= SPACE:
            spaces |= every
            previous_space = first
            if character == BLANK:
                blanks |= first
        else:
            last_spaces |= previous_space
            previous_space = _ZERO
            if UPPER <= character_class <= LETTER:
                letters |= every
            elif character_class == NUMBER:
                numbers |= every
            elif character == APOSTROPHE:
                apostrophes |= first
        index += length
    if previous_space and index < stop and not _is_space(data, classes, index):
        last_spaces |= previous_space
    return letters, numbers, spaces, blanks, apostrophes, firsts, last_spaces, index - start


@subkernel
def _cut_at_contractions(
    data: Bytes,
    position: int,
    size: int,
    stop: int,
    starts: np.uint64,
    apostrophes: np.uint64,
    forced: int,
) -> tuple[np.uint64, int]:
    """Apply rule 3 to the starts among `size` bytes.

    The next word starts at `forced` at the earliest, and there for certain, unless that has been
    passed already: a contraction may continue from the 64 bytes before.
    """
    if forced >= position:
        keep = _ONE << np.uint64(forced - position)
        starts &= ~(keep - _ONE)
        if forced < position + size:
            starts |= keep
    contractions = apostrophes & starts
    while contractions:
        offset = trailing_zeros(contractions)
        contractions &= contractions - _ONE
        length = contraction_length(data, position + offset, stop)
        if length:
            forced = position + offset + length
            inside = (_ONE << np.uint64(length - 1)) - _ONE
            starts &= ~(inside << _ONE << np.uint64(offset))
            if offset + length < size:
                starts |= _ONE << np.uint64(offset + length)
    return starts, forced


@subkernel
def scan_gpt2(
    data: Bytes, classes: Bytes, start: int, stop: int, ends: Ends, count: int
) -> tuple[int, int]:
    """Write the end of each word of data[start:stop] to ends[count:].

    Returns the new count and where to continue: `stop`, or an earlier end if `ends` is full.
    """
    letter_before = number_before = space_before = blank_before = other_before = _ZERO
    forced = start
    position = start
    while position < stop:
        if count + ROOM > ends.size:
            return count, ends[count - 1]
        size = min(WIDTH, stop - position)
        in_text = _ALL >> np.uint64(WIDTH - size)
        firsts = in_text
        high = _ALL
        if position + WIDTH <= data.size:
            letters, numbers, spaces, blanks, apostrophes, high = ascii_masks(data, position)
        if high & in_text:
            letters, numbers, spaces, blanks, apostrophes, firsts, last_spaces, size = (
                _masks_by_character(data, classes, position, stop)
            )
            in_text = _ALL >> np.uint64(WIDTH - size)
        else:
            letters &= in_text
            numbers &= in_text
            spaces &= in_text
            blanks &= in_text
            apostrophes &= in_text
            last = spaces >> np.uint64(size - 1) << np.uint64(size - 1)
            last_spaces = spaces & ~(spaces >> _ONE) & ~last
            after = position + size
            if last and after < stop and not _is_space(data, classes, after):
                last_spaces |= last
        others = in_text & ~(letters | numbers | spaces)

        starts = letters & ~(letters << _ONE | letter_before)
        starts |= numbers & ~(numbers << _ONE | number_before)
        starts |= others & ~(others << _ONE | other_before)
        starts &= ~(blanks << _ONE | blank_before)
        starts |= spaces & ~(spaces << _ONE | space_before)
        starts = starts & firsts | last_spaces

        starts, forced = _cut_at_contractions(
            data, position, size, stop, starts, apostrophes, forced
        )
        if position == start:
            starts &= ~_ONE  # the start of the first word ends none
        index = count
        count += count_ones(starts)
        while index < count:
            for i in range(_AT_ONCE):
                put(ends, index + i, position + trailing_zeros(starts))
                starts &= starts - _ONE
            index += _AT_ONCE

        top = np.uint64(size - 1)
        letter_before = letters >> top & _ONE
        number_before = numbers >> top & _ONE
        other_before = others >> top & _ONE
        blank_before = blanks >> top & _ONE
        space_before = spaces >> top & _ONE
        position += size
    ends[count] = stop
    return count + 1, stop
