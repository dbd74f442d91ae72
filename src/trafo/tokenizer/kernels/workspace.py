"""Many arrays as one argument.

Handing an array to a kernel costs about 150 ns, which for a short text and a dozen arrays is more
than encoding it. So what an encoder keeps from call to call is handed over as one array of
addresses and sizes, and made arrays again inside. The owner keeps the arrays alive.
"""

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from trafo.tokenizer.kernels.compile import part

Handles = NDArray[np.uint64]


class Workspace:
    """Named arrays; `handles` is what kernels take."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._arrays: dict[str, NDArray[Any]] = {}
        self.handles: Handles = np.zeros(2 * len(names), np.uint64)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __setitem__(self, name: str, array: NDArray[Any]) -> None:
        assert array.flags.c_contiguous
        index = self._names.index(name)
        self._arrays[name] = array
        self.handles[2 * index] = array.ctypes.data
        self.handles[2 * index + 1] = array.size


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.uint64), generate


@part
def as_bytes(address: np.uint64, size: np.uint64) -> NDArray[np.uint8]:
    return carray(_pointer(address), np.int64(size), np.uint8)


@part
def as_uint32s(address: np.uint64, size: np.uint64) -> NDArray[np.uint32]:
    return carray(_pointer(address), np.int64(size), np.uint32)


@part
def as_int64s(address: np.uint64, size: np.uint64) -> NDArray[np.int64]:
    return carray(_pointer(address), np.int64(size), np.int64)


@part
def as_uint64s(address: np.uint64, size: np.uint64) -> NDArray[np.uint64]:
    return carray(_pointer(address), np.int64(size), np.uint64)
