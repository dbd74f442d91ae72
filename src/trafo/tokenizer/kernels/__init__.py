"""Everything that numba compiles: Python functions that become machine code on first use.

Read them as C in Python's syntax. Arguments are numbers and flat arrays, or a NamedTuple of arrays,
which costs nothing inside: the compiler sees its fields. Indices are not checked, and nothing is
allocated, because a kernel runs without the GIL. So Python makes all arrays, and a kernel that
finds one too small returns early with the reason; Python makes room and calls it again, and it
resumes from the numbers in its `state` array. `get` and `put` of `bits.py` are `array[i]` without
Python's rule that a negative index counts from the end, which costs a comparison and a branch.

The path of a text: `scan.py` finds where its words end, `word_table.py` looks words up and counts
them, `merge.py` learns merges from the counts, `bpe.py` applies them to one word, and `encode.py`
does so for all words of a text, through a cache.
"""
