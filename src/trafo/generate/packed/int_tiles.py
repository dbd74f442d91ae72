"""The inner loop of int8 products: a few rows of x times a panel of `LANES` columns, in integers.

    out[r, :LANES] = sum over k of x[r, k] * panel[k, :LANES]

x is int16, the panel int8; sums are exact in int32, so they do not depend on any order. A panel
has pairs of k side by side, (depth / 2, LANES, 2): AVX2 multiplies 16 int16 and adds neighbours in
one instruction (`pmaddwd`), without which this would not be faster than float32.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from trafo.generate.packed.tiles import LANES, pointers, store_rows, sum_over

_F32, _I8, _I16, _I32, _I64 = ir.FloatType(), *map(ir.IntType, (8, 16, 32, 64))
_SUMS = ir.VectorType(_I32, LANES)
_PAIRS = ir.VectorType(_I16, 2 * LANES)


def _make_tile(num_rows: int) -> Any:
    """The loop for `num_rows` rows; places and strides are counted in numbers."""

    @intrinsic
    def tile(context, x, x_at, x_stride, panel, at, num_pairs, out, out_at, out_stride):
        number = types.intp
        signature = types.void(x, number, number, panel, number, number, out, number, number)
        return signature, _code(num_rows)

    return tile


def _code(num_rows: int) -> Any:
    def generate(context, builder, signature, args):
        x, panel, out = pointers(context, builder, signature, args, (0, 3, 6))
        x_stride, num_pairs, out_stride = args[2], args[5], args[8]

        def add(k, sums):
            weights = _load_weights(builder, panel, k)
            for r, before_k in enumerate(sums):
                pair = _load_pair(builder, x, builder.mul(x_stride, _I64(r)), k)
                yield builder.add(before_k, _add_pairs(builder, weights, pair))

        zero = ir.Constant(_SUMS, [0] * LANES)
        totals = sum_over(builder, num_pairs, num_rows, zero, add)
        floats = [builder.sitofp(total, ir.VectorType(_F32, LANES)) for total in totals]
        store_rows(builder, floats, out, out_stride)
        return context.get_dummy_value()

    return generate


def _load_weights(builder, panel, k):
    vector = ir.VectorType(_I8, 2 * LANES)
    place = builder.gep(panel, [builder.mul(k, _I64(2 * LANES))])
    small = builder.load(builder.bitcast(place, vector.as_pointer()), align=1)
    return builder.sext(small, _PAIRS)


def _load_pair(builder, x, row, k):
    """Two neighbours of x, repeated in all lanes."""
    place = builder.gep(x, [builder.add(row, builder.mul(k, _I64(2)))])
    pair = builder.load(builder.bitcast(place, _I32.as_pointer()), align=2)
    nothing = ir.Constant(_SUMS, ir.Undefined)
    first = builder.insert_element(nothing, pair, _I32(0))
    lanes = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.bitcast(builder.shuffle_vector(first, nothing, lanes), _PAIRS)


def _add_pairs(builder, a, b):
    """a[0] b[0] + a[1] b[1], a[2] b[2] + a[3] b[3], ..."""
    if binding.get_host_cpu_features().get("avx2"):
        halves = [_pmaddwd(builder, *(_part(builder, v, i, 16) for v in (a, b))) for i in (0, 16)]
        every = ir.Constant(ir.VectorType(_I32, LANES), list(range(LANES)))
        return builder.shuffle_vector(*halves, every)
    products = builder.mul(*(builder.sext(v, ir.VectorType(_I32, 2 * LANES)) for v in (a, b)))
    return builder.add(*(_part(builder, products, i, LANES, 2) for i in (0, 1)))


def _pmaddwd(builder, a, b):
    kind = ir.FunctionType(ir.VectorType(_I32, 8), [ir.VectorType(_I16, 16)] * 2)
    name = "llvm.x86.avx2.pmadd.wd"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [a, b])


def _part(builder, vector, start: int, number: int, step: int = 1):
    places = [start + step * i for i in range(number)]
    mask = ir.Constant(ir.VectorType(_I32, number), places)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


int_tile_1, int_tile_2, int_tile_4, int_tile_6 = map(_make_tile, (1, 2, 4, 6))
