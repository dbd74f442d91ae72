"""Many arrays as one argument.

Handing an array to a kernel costs about 150 ns, which for a short text and a dozen arrays is more
than encoding it. So what an encoder keeps from call to call is handed over as one array of
addresses and sizes, and made arrays again inside. One table, a `NamedTuple` class of array types,
says for both sides which arrays there are: its order does not matter.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numba import from_dtype, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from trafo.tokenizer.kernels.arrays import Uint64s

Handles = Uint64s
Table = TypeVar("Table", bound=tuple[Any, ...])


class Workspace:
    """The arrays that a table names, kept alive, and the `handles` that kernels take."""

    def __init__(self, table: type[tuple[Any, ...]]) -> None:
        self._dtypes = _dtypes(table)
        self._index = {name: 2 * i for i, name in enumerate(self._dtypes)}
        self._arrays: dict[str, NDArray[Any]] = {}
        self.handles: Handles = np.zeros(2 * len(self._dtypes), np.uint64)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __setitem__(self, name: str, array: NDArray[Any]) -> None:
        dtype, index = self._dtypes[name], self._index[name]
        if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
            raise TypeError(f"{name} must be a flat array of {dtype}")
        self._arrays[name] = array
        self.handles[index : index + 2] = array.ctypes.data, array.size


def unpacker(table: type[Table]) -> Callable[[Handles], Table]:
    """A function that kernels call to make handles the arrays of a table again, by name."""
    array_types = [types.Array(from_dtype(dtype), 1, "C") for dtype in _dtypes(table).values()]

    @intrinsic
    def unpack(typing_context: Any, handles: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base = make_array(signature.args[0])(context, builder, args[0]).data
            arrays = [
                _make_array(context, builder, array_type, base, 2 * i)
                for i, array_type in enumerate(array_types)
            ]
            return context.make_tuple(builder, signature.return_type, arrays)

        return types.NamedTuple(array_types, table)(handles), generate

    return unpack


def _make_array(context: Any, builder: Any, array_type: Any, handles: Any, index: int) -> Any:
    """The array whose address and size are at an index of the handles."""
    word = context.get_value_type(types.intp)
    address, size = (builder.load(builder.gep(handles, [word(index + i)])) for i in (0, 1))
    array = make_array(array_type)(context, builder)
    item_size = word(context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=[size],
        strides=[item_size],
        itemsize=item_size,
        meminfo=None,
    )
    return array._getvalue()


def _dtypes(table: type[tuple[Any, ...]]) -> dict[str, np.dtype[Any]]:
    """The dtype of each array of a table, from its annotations."""
    return {
        name: np.dtype(get_args(get_args(array_type)[1])[0])
        for name, array_type in get_type_hints(table).items()
    }
