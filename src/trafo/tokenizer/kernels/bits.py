"""Machine words for the kernels: unaligned loads, bit counting, 64 bytes classified at once.

numba cannot express these, so each is a few lines of LLVM IR. LLVM turns the 64-lane vectors into
what the processor has (AVX2, AVX-512, NEON, or plain code), so the result is the same everywhere
and only the speed differs. No index is checked: callers keep reads inside the array.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_LANES = ir.VectorType(_BYTE, 64)


def _pointer(
    context: Any, builder: Any, array_type: Any, array: Any, index: Any, target: Any
) -> Any:
    """The address of array[index], as a pointer to `target`."""
    base = context.make_array(array_type)(context, builder, array).data
    address = builder.gep(builder.bitcast(base, _BYTE.as_pointer()), [index])
    return builder.bitcast(address, target.as_pointer())


def _load(context: Any, builder: Any, array_type: Any, array: Any, index: Any, target: Any) -> Any:
    """What is at array[index], which need not be aligned, as a `target`."""
    value = builder.load(_pointer(context, builder, array_type, array, index, target))
    value.align = 1
    return value


@intrinsic
def load8(typing_context: Any, data: Any, index: Any) -> Any:
    """Eight bytes of a uint8 array from any index, little endian, as one uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature.args[0], args[0], args[1], _WORD)

    return types.uint64(data, types.int64), generate


@intrinsic
def get(typing_context: Any, array: Any, index: Any) -> Any:
    """array[index] of a flat array, without numba's test for a negative index."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(base, [args[1]]))

    return array.dtype(array, types.int64), generate


@intrinsic
def put(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index] = value, in the same way."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.store(args[2], builder.gep(base, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of array[index] ahead of its use."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        size = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
        offset = builder.mul(args[1], _WORD(size))
        pointer = _pointer(context, builder, array_type, args[0], offset, _BYTE)
        hint = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [pointer.type],
            ir.FunctionType(ir.VoidType(), [pointer.type, hint, hint, hint]),
        )
        read, keep, data_cache = hint(0), hint(3), hint(1)
        builder.call(function, [pointer, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The index of the lowest set bit, or 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def count_ones(typing_context: Any, word: Any) -> Any:
    """How many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def ascii_masks(typing_context: Any, data: Any, index: Any) -> Any:
    """Classify data[index : index + 64] as ASCII, with bit i of each result for byte i.

    Returns (letters, digits, white space, blanks, apostrophes, non-ASCII bytes).
    """
    result = types.UniTuple(types.uint64, 6)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load(context, builder, signature.args[0], args[0], args[1], _LANES)

        def all_lanes(value: int) -> Any:
            return ir.Constant(_LANES, [value] * 64)

        def in_range(lanes: Any, first: int, last: int) -> Any:
            shifted = builder.sub(lanes, all_lanes(first))
            return builder.icmp_unsigned("<=", shifted, all_lanes(last - first))

        letters = in_range(builder.or_(vector, all_lanes(0x20)), ord("a"), ord("z"))
        digits = in_range(vector, ord("0"), ord("9"))
        blanks = builder.icmp_unsigned("==", vector, all_lanes(ord(" ")))
        spaces = builder.or_(blanks, in_range(vector, ord("\t"), ord("\r")))
        apostrophes = builder.icmp_unsigned("==", vector, all_lanes(ord("'")))
        high = builder.icmp_signed("<", vector, all_lanes(0))
        lanes = (letters, digits, spaces, blanks, apostrophes, high)
        words = [builder.bitcast(mask, _WORD) for mask in lanes]
        return context.make_tuple(builder, signature.return_type, words)

    return result(data, types.int64), generate


@intrinsic
def range_mask(typing_context: Any, data: Any, index: Any, first: Any, last: Any) -> Any:
    """Bit i is set where first <= data[index + i] <= last, for i in 0..63."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, position, low, high = args
        vector = _load(context, builder, signature.args[0], array, position, _LANES)

        def all_lanes(byte: Any) -> Any:
            nothing = ir.Constant(_LANES, ir.Undefined)
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
            one = builder.insert_element(nothing, byte, ir.IntType(32)(0))
            return builder.shuffle_vector(one, nothing, zeros)

        shifted = builder.sub(vector, all_lanes(low))
        inside = builder.icmp_unsigned("<=", shifted, all_lanes(builder.sub(high, low)))
        return builder.bitcast(inside, _WORD)

    return types.uint64(data, types.int64, types.uint8, types.uint8), generate
