"""What kernels and the code around them share: array types, of which numba sees only the dtype and
the number of dimensions, and the longest token."""

from typing import Any, TypeVar

import numpy as np

# Not numpy's NDArray, which on some versions is an alias that hides its dtype from workspace.py.
Scalar = TypeVar("Scalar", bound=np.generic)
Array = np.ndarray[tuple[Any, ...], np.dtype[Scalar]]

Bytes = Array[np.uint8]
Int32s = Array[np.int32]
Int64s = Array[np.int64]
Uint32s = Array[np.uint32]
Uint64s = Array[np.uint64]

NUM_BYTES = 256  # values of a byte: the first symbols

# In bytes. Without a limit, text without spaces would give useless tokens of megabytes.
LONGEST_TOKEN = 4096

Ids = Uint32s
Counts = Int64s  # how often something occurs
Ends = Int64s  # where each word ends; the next one begins there

# (number, 3): start, stop and index of each special token in a text. The end of a document, which
# no word crosses either, is an empty one with an index of its own.
Specials = Int64s
