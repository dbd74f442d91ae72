"""Products with int8 weights, in integers.

The rows of x are rounded to int16 as well: x = small * scale, where scale is the row's largest
magnitude / the largest number with which no sum can overflow int32. That is 32,767 for matrices of
up to 516 columns, 4,128 for 4,096 columns: the weights, which have 127 steps, lose far more.
"""

import numpy as np
from numba import prange
from numpy.typing import NDArray

from trafo.generate.packed.int_tiles import int_tile_1, int_tile_2, int_tile_4, int_tile_6
from trafo.generate.packed.tiles import LANES, bits_of_float, float_of_bits
from trafo.runtime.kernels import float_subkernel, parallel_kernel

Floats = NDArray[np.float32]
Int8s = NDArray[np.int8]
Int16s = NDArray[np.int16]

_WEIGHTS = 127
"""largest magnitude of int8 weights"""


@float_subkernel
def _largest_magnitude(row: Floats) -> np.float32:
    """At least 1e-30; not a number if any of them is not.

    The bits of positive floats are in the order of the floats, NaN last, and the highest integer is
    found in vector registers.
    """
    highest = bits_of_float(np.float32(1e-30))
    for k in range(row.shape[0]):
        highest = max(highest, bits_of_float(abs(row[k])))
    largest: np.float32 = float_of_bits(highest)
    return largest


@float_subkernel
def _round_rows(x: Floats, small: Int16s, scales: Floats) -> None:
    """x = small * scales, up to scales / 2."""
    depth = min(x.shape[1], small.shape[1])
    most = min(32767, (2**31 - 1) // (_WEIGHTS * depth))
    for b in range(x.shape[0]):
        row, rounded = x[b], small[b]
        highest = _largest_magnitude(row[:depth])
        factor = np.float32(most) / highest
        for k in range(depth):
            rounded[k] = np.int16(np.int32(np.floor(row[k] * factor + np.float32(0.5))))
        for k in range(depth, small.shape[1]):
            rounded[k] = 0
        scales[b] = highest / np.float32(most) + np.float32(0) * highest


@float_subkernel
def _panel_product(
    small: Int16s, panels: Int8s, row_scales: Floats, scales: Floats, p: np.int64, out: Floats
) -> None:
    """All rows times one panel, which stays in the processor's cache."""
    num_rows, stride, width = small.shape[0], small.shape[1], out.shape[1]
    pairs, column = panels.shape[1], p * LANES
    at = p * pairs * LANES * 2
    b = 0
    while b < num_rows:
        left = num_rows - b
        x_at, out_at = b * stride, b * width + column
        if left >= 6 and left != 8:
            int_tile_6(small, x_at, stride, panels, at, pairs, out, out_at, width)
            b += 6
        elif left >= 4:
            int_tile_4(small, x_at, stride, panels, at, pairs, out, out_at, width)
            b += 4
        elif left >= 2:
            int_tile_2(small, x_at, stride, panels, at, pairs, out, out_at, width)
            b += 2
        else:
            int_tile_1(small, x_at, stride, panels, at, pairs, out, out_at, width)
            b += 1
    for b in range(num_rows):
        for o in range(column, column + LANES):
            out[b, o] *= row_scales[b] * scales[o]


@float_subkernel
def int8_products(x: Floats, panels: Int8s, scales: Floats, out: Floats) -> None:
    """out = x W^T; W is int8 in panels (columns / LANES, depth / 2, LANES, 2) times `scales`."""
    small = np.empty((x.shape[0], 2 * panels.shape[1]), np.int16)
    row_scales = np.empty(x.shape[0], np.float32)
    _round_rows(x, small, row_scales)
    for p in range(panels.shape[0]):
        _panel_product(small, panels, row_scales, scales, np.int64(p), out)


@parallel_kernel
def parallel_int8_products(x: Floats, panels: Int8s, scales: Floats, out: Floats) -> None:
    """`int8_products`, the panels shared among threads."""
    small = np.empty((x.shape[0], 2 * panels.shape[1]), np.int16)
    row_scales = np.empty(x.shape[0], np.float32)
    _round_rows(x, small, row_scales)
    for p in prange(panels.shape[0]):
        _panel_product(small, panels, row_scales, scales, np.int64(p), out)
