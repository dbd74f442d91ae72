"""What kernels and the code around them share: array types, of which numba sees only the dtype and
the number of dimensions, and the longest token."""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint32s = NDArray[np.uint32]
Uint64s = NDArray[np.uint64]

NUM_BYTES = 256  # values of a byte: the first symbols

# In bytes. Without a limit, text without spaces would give useless tokens of megabytes.
LONGEST_TOKEN = 4096

Ids = Uint32s
Counts = Int64s  # how often something occurs
Ends = Int64s  # where each word ends; the next one begins there

# (number, 3): start, stop and index of each special token in a text. The end of a document, which
# no word crosses either, is an empty one with an index of its own.
Specials = Int64s
