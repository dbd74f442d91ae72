"""The arithmetic of one decoding step on few rows, compiled by numba for this processor.

A decoding step multiplies a few vectors by every matrix of the model. Memory bandwidth limits it,
if each weight is read once and there is little overhead. Library matrix products are made for many
rows, and hundreds of small calls take as long as the arithmetic.

Everything is float32, row-major. Sums are taken in whatever order is fastest, so results
equal the readable model's up to rounding.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# Sums in any order and fused multiply-add, without which no sum runs in vector registers; but
# NaN stays NaN.
_MATHS = {"reassoc", "contract", "nsz"}


def kernel(*, parallel: bool = False) -> Callable[[Function], Function]:
    """Compile with numba; `parallel` spreads prange over threads."""

    def compiled(function: Function) -> Function:
        made: Function = njit(cache=True, nogil=True, fastmath=_MATHS, parallel=parallel)(function)
        return made

    return compiled


@kernel()
def _dot_one(row: Floats, x: Floats) -> np.float32:
    total = np.float32(0)
    for k in range(row.shape[0]):
        total += row[k] * x[k]
    return total


@kernel()
def _dot_four(row: Floats, x: Floats, out: Floats) -> None:
    """Four rows of x at a time: each number of the matrix is loaded once for all of them."""
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    a0 = a1 = a2 = a3 = np.float32(0)
    for k in range(row.shape[0]):
        w = row[k]
        a0 += w * x0[k]
        a1 += w * x1[k]
        a2 += w * x2[k]
        a3 += w * x3[k]
    out[0], out[1], out[2], out[3] = a0, a1, a2, a3


@kernel()
def _dot_eight(row: Floats, x: Floats, out: Floats) -> None:
    """Eight rows of x at a time: as many as there are registers for."""
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float32(0)
    for k in range(row.shape[0]):
        w = row[k]
        a0 += w * x0[k]
        a1 += w * x1[k]
        a2 += w * x2[k]
        a3 += w * x3[k]
        a4 += w * x4[k]
        a5 += w * x5[k]
        a6 += w * x6[k]
        a7 += w * x7[k]
    out[0], out[1], out[2], out[3] = a0, a1, a2, a3
    out[4], out[5], out[6], out[7] = a4, a5, a6, a7


@kernel(parallel=True)
def products(x: Floats, weight: Floats, out: Floats) -> None:
    """out = x W^T; every row of W is read from memory once, for all rows of x."""
    num_rows = x.shape[0]
    for o in prange(weight.shape[0]):
        row, column = weight[o], out[:, o]
        b = 0
        while b + 8 <= num_rows:
            _dot_eight(row, x[b : b + 8], column[b : b + 8])
            b += 8
        if b + 4 <= num_rows:
            _dot_four(row, x[b : b + 4], column[b : b + 4])
            b += 4
        while b < num_rows:
            column[b] = _dot_one(row, x[b])
            b += 1


@kernel()
def rms_norm(x: Floats, gain: Floats, eps: float, out: Floats) -> None:
    """x / sqrt(mean(x^2) + eps) * gain."""
    for b in range(x.shape[0]):
        scale = np.float32(1.0 / math.sqrt(_dot_one(x[b], x[b]) / x.shape[1] + eps))
        for k in range(x.shape[1]):
            out[b, k] = x[b, k] * scale * gain[k]


@kernel()
def layer_norm(x: Floats, gain: Floats, shift: Floats, eps: float, out: Floats) -> None:
    """(x - mean(x)) / sqrt(var(x) + eps) * gain + shift."""
    for b in range(x.shape[0]):
        mean = np.float32(0)
        for k in range(x.shape[1]):
            mean += x[b, k]
        mean /= np.float32(x.shape[1])
        for k in range(x.shape[1]):
            out[b, k] = x[b, k] - mean
        scale = np.float32(1.0 / math.sqrt(_dot_one(out[b], out[b]) / x.shape[1] + eps))
        for k in range(x.shape[1]):
            out[b, k] = out[b, k] * scale * gain[k] + shift[k]


@kernel()
def rotate(heads: Floats, cos: Floats, sin: Floats, positions: Ints) -> None:
    """RoPE: rotate the adjacent pairs of every head by its row's position, in place."""
    for b in range(heads.shape[0]):
        c, s = cos[positions[b]], sin[positions[b]]
        for h in range(heads.shape[1]):
            for k in range(c.shape[0]):
                a, z = heads[b, h, 2 * k], heads[b, h, 2 * k + 1]
                heads[b, h, 2 * k] = a * c[k] - z * s[k]
                heads[b, h, 2 * k + 1] = a * s[k] + z * c[k]


@kernel(parallel=True)
def attend(
    q: Floats, k: Floats, v: Floats, keys: Floats, values: Floats, slots: Ints, window: int
) -> Floats:
    """Store each row's new key and value in its slot, then attend to all slots up to it.

    q is (batch, heads, d_head), k and v (batch, kv_heads, d_head), the cache (batch, kv_heads,
    capacity, d_head). Window 0: no window.
    """
    batch, heads, d_head = q.shape
    group = heads // k.shape[1]
    scale = np.float32(1.0 / math.sqrt(d_head))
    out = np.zeros_like(q)
    for i in prange(batch * k.shape[1]):
        b, h = i // k.shape[1], i % k.shape[1]
        stop = slots[b] + 1
        start = max(0, stop - window) if window else 0
        keys[b, h, slots[b]] = k[b, h]
        values[b, h, slots[b]] = v[b, h]
        weights = np.empty(stop - start, np.float32)
        for head in range(h * group, (h + 1) * group):
            highest = np.float32(-np.inf)
            for t in range(start, stop):
                score = _dot_one(keys[b, h, t], q[b, head]) * scale
                weights[t - start] = score
                highest = max(highest, score)
            total = np.float32(0)
            for t in range(stop - start):
                weights[t] = math.exp(weights[t] - highest)
                total += weights[t]
            mean = out[b, head]
            for t in range(start, stop):
                share = weights[t - start] / total
                for d in range(d_head):
                    mean[d] += share * values[b, h, t, d]
    return out
