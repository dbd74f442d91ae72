"""The inner loop of every product: a few rows of x times a panel of `LANES` columns.

    out[r, :LANES] = sum over k of x[r, k] * panel[k, :LANES]

numba cannot keep an array in registers, so this is written in LLVM's own terms: vectors of `LANES`
numbers, one sum for each row, which LLVM turns into whatever registers the processor has. Every sum
is taken in the order of k, whatever the number of rows: a row's result does not depend on the rows
beside it.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

LANES = 16
"""columns of a panel: two vectors of AVX2, one of AVX-512"""

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)
_CONTRACT = ("contract",)  # fused multiply-add where there is one


def _make_tile(num_rows: int) -> Any:
    """The loop for `num_rows` rows; places and strides are counted in numbers."""

    @intrinsic
    def tile(context, x, x_at, x_stride, panel, at, stride, depth, out, out_at, out_stride):
        number = types.intp
        signature = types.void(
            x, number, number, panel, number, number, number, out, number, number
        )
        return signature, _code(num_rows)

    return tile


def _code(num_rows: int) -> Any:
    def generate(context, builder, signature, args):
        x, panel, out = pointers(context, builder, signature, args, (0, 3, 7))
        x_stride, stride, depth, out_stride = args[2], args[5], args[6], args[9]

        def add(k, sums):
            row = builder.gep(panel, [builder.mul(k, stride)])
            weights = builder.load(builder.bitcast(row, _VECTOR.as_pointer()), align=4)
            for r, before_k in enumerate(sums):
                place = builder.add(k, builder.mul(x_stride, _I64(r)))
                product = builder.fmul(_spread(builder, x, place), weights, flags=_CONTRACT)
                yield builder.fadd(before_k, product, flags=_CONTRACT)

        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        store_rows(builder, sum_over(builder, depth, num_rows, zero, add), out, out_stride)
        return context.get_dummy_value()

    return generate


def pointers(context, builder, signature, args, places):
    """Where the arrays at these places of `args` begin, moved by the argument after each."""
    for i in places:
        data = make_array(signature.args[i])(context, builder, args[i]).data
        yield builder.gep(data, [args[i + 1]])


def sum_over(builder, num_steps, num_rows, zero, add):
    """A loop over k: `add(k, sums)` gives the sums after step k, which begin as `zero`."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("tile", "tile.end"))
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_I64)
    sums = [builder.phi(zero.type) for _ in range(num_rows)]
    totals = list(add(k, sums))
    following = builder.add(k, _I64(1))
    k.add_incoming(_I64(0), before)
    k.add_incoming(following, loop)
    for each, total in zip(sums, totals, strict=True):
        each.add_incoming(zero, before)
        each.add_incoming(total, loop)
    builder.cbranch(builder.icmp_signed("<", following, num_steps), loop, after)
    builder.position_at_end(after)
    return totals


def store_rows(builder, vectors, out, stride):
    """Each vector into a row of its own."""
    for r, vector in enumerate(vectors):
        place = builder.gep(out, [builder.mul(stride, _I64(r))])
        builder.store(vector, builder.bitcast(place, vector.type.as_pointer()), align=4)


def _spread(builder, x, place):
    """One number of x in all lanes."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, builder.load(builder.gep(x, [place])), _I32(0))
    lanes = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(first, nothing, lanes)


tile_1, tile_2, tile_4, tile_6 = map(_make_tile, (1, 2, 4, 6))


@intrinsic
def float_of_bits(context, bits):
    """The float32 that has these 32 bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], _F32)

    return types.float32(types.int32), generate


@intrinsic
def bits_of_float(context, number):
    """The 32 bits of a float32."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], _I32)

    return types.int32(types.float32), generate
