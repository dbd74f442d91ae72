"""The arithmetic of a step on rows of tokens, compiled by numba for this processor.

Everything is float32, row-major. Products fill whole panels, so a buffer may be wider than needed.
No kernel mixes rows, and none lets the number of rows change the order of a sum.

The two kernels that take most of the time, products and attention, exist twice: `parallel_...`
share one step among all threads, the others run in the calling thread, for searches side by side.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from trafo.generate.engine.cache import StepBatch
from trafo.generate.packed.tiles import LANES, float_of_bits, tile_1, tile_2, tile_4, tile_6
from trafo.runtime.kernels import float_kernel, float_subkernel, parallel_kernel

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@float_subkernel
def _panel_product(x: Floats, panels: Floats, p: np.int64, out: Floats) -> None:
    """All rows of x times one panel, which stays in the processor's cache."""
    num_rows, x_stride, out_stride = x.shape[0], x.shape[1], out.shape[1]
    depth = panels.shape[1]
    at, column = p * depth * LANES, p * LANES
    b = 0
    while b < num_rows:
        left = num_rows - b
        x_at, out_at = b * x_stride, b * out_stride + column
        if left >= 6 and left != 8:
            tile_6(x, x_at, x_stride, panels, at, LANES, depth, out, out_at, out_stride)
            b += 6
        elif left >= 4:
            tile_4(x, x_at, x_stride, panels, at, LANES, depth, out, out_at, out_stride)
            b += 4
        elif left >= 2:
            tile_2(x, x_at, x_stride, panels, at, LANES, depth, out, out_at, out_stride)
            b += 2
        else:
            tile_1(x, x_at, x_stride, panels, at, LANES, depth, out, out_at, out_stride)
            b += 1


@float_subkernel
def products(x: Floats, panels: Floats, out: Floats) -> None:
    """out = x W^T; W lies in panels (columns / LANES, depth, LANES)."""
    for p in range(panels.shape[0]):
        _panel_product(x, panels, np.int64(p), out)


@parallel_kernel
def parallel_products(x: Floats, panels: Floats, out: Floats) -> None:
    """`products`, the panels shared among threads."""
    for p in prange(panels.shape[0]):
        _panel_product(x, panels, np.int64(p), out)


@float_subkernel
def _dot(a: Floats, b: Floats) -> np.float32:
    total = np.float32(0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@float_subkernel
def _rms_norm_row(x: Floats, gain: Floats, eps: float, out: Floats) -> None:
    scale = np.float32(1.0 / math.sqrt(_dot(x, x) / x.shape[0] + eps))
    for k in range(x.shape[0]):
        out[k] = x[k] * scale * gain[k]


@float_kernel
def rms_norm(x: Floats, gain: Floats, eps: float, out: Floats) -> None:
    """x / sqrt(mean(x^2) + eps) * gain."""
    for b in range(x.shape[0]):
        _rms_norm_row(x[b], gain, eps, out[b])


@float_kernel
def layer_norm(x: Floats, gain: Floats, shift: Floats, eps: float, out: Floats) -> None:
    """(x - mean(x)) / sqrt(var(x) + eps) * gain + shift."""
    for b in range(x.shape[0]):
        mean = np.float32(0)
        for k in range(x.shape[1]):
            mean += x[b, k]
        mean /= np.float32(x.shape[1])
        for k in range(x.shape[1]):
            out[b, k] = x[b, k] - mean
        scale = np.float32(1.0 / math.sqrt(_dot(out[b], out[b]) / x.shape[1] + eps))
        for k in range(x.shape[1]):
            out[b, k] = out[b, k] * scale * gain[k] + shift[k]


@float_kernel
def normalize_heads(x: Floats, first: int, num_heads: int, gain: Floats, eps: float) -> None:
    """RMSNorm of each head, in place; the heads begin at column `first`."""
    size = gain.shape[0]
    for b in range(x.shape[0]):
        for h in range(num_heads):
            head = x[b, first + h * size : first + (h + 1) * size]
            _rms_norm_row(head, gain, eps, head)


@float_kernel
def rotate(x: Floats, num_heads: int, cos: Floats, sin: Floats, positions: Ints) -> None:
    """RoPE: rotate the adjacent pairs of the first heads by the row's position, in place."""
    half = cos.shape[1]
    for b in range(x.shape[0]):
        c, s = cos[positions[b]], sin[positions[b]]
        for h in range(num_heads):
            head = x[b, 2 * half * h : 2 * half * (h + 1)]
            for k in range(half):
                a, z = head[2 * k], head[2 * k + 1]
                head[2 * k] = a * c[k] - z * s[k]
                head[2 * k + 1] = a * s[k] + z * c[k]


@float_kernel
def store(qkv: Floats, num_heads: int, keys: Floats, values: Floats, batch: StepBatch) -> None:
    """Put each token's keys and values into its place in the cache."""
    positions, rows, tables = batch.positions, batch.rows, batch.tables
    kv_heads, d_head, size = keys.shape[1], keys.shape[2], keys.shape[3]
    for b in range(qkv.shape[0]):
        block, offset = tables[rows[b], positions[b] // size], positions[b] % size
        for h in range(kv_heads):
            k_at = (num_heads + h) * d_head
            v_at = (num_heads + kv_heads + h) * d_head
            for d in range(d_head):
                keys[block, h, d, offset] = qkv[b, k_at + d]
                values[block, h, offset, d] = qkv[b, v_at + d]


@float_subkernel
def exp(x: np.float32) -> np.float32:
    """e^x for x <= 0, by a polynomial that runs in vector registers; relative error 2e-7."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x  # this way round, NaN stays NaN
    whole = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    # ln 2 in two parts: the first is exact in few bits, so the difference loses nothing.
    r = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    p = np.float32(1 / 5040)
    p = p * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    power: np.float32 = float_of_bits(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    result: np.float32 = p * power
    return result


@float_subkernel
def _sigmoid(x: np.float32) -> np.float32:
    small = exp(-abs(x))  # sigmoid(-|x|) = e^-|x| / (1 + e^-|x|): never overflows
    return (np.float32(1) if x >= 0 else small) / (np.float32(1) + small)


@float_subkernel
def _normal(x: np.float32) -> np.float32:
    """The normal distribution function, from erfc by Abramowitz and Stegun, 7.1.26."""
    a = abs(x) * np.float32(0.7071067811865476)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * a)
    p = np.float32(1.061405429)
    p = p * t - np.float32(1.453152027)
    p = p * t + np.float32(1.421413741)
    p = p * t - np.float32(0.284496736)
    p = p * t + np.float32(0.254829592)
    small = np.float32(0.5) * p * t * exp(-a * a)
    return np.float32(1) - small if x >= 0 else small


SWIGLU = "swiglu"
ACTIVATIONS = (SWIGLU, "relu", "relu2", "silu", "gelu", "gelu_tanh")
_SWIGLU, _RELU, _RELU2, _SILU, _GELU, _GELU_TANH = range(len(ACTIVATIONS))


@float_kernel
def activate(x: Floats, activation: int, out: Floats) -> None:
    """One of `ACTIVATIONS`. For SwiGLU, a row of x is all gates, then all values."""
    size = out.shape[1]
    for b in range(out.shape[0]):
        row, to = x[b, :size], out[b]
        if activation == _SWIGLU:
            values = x[b, size : 2 * size]
            for k in range(size):
                to[k] = row[k] * _sigmoid(row[k]) * values[k]
        elif activation == _RELU:
            for k in range(size):
                to[k] = np.float32(0) if row[k] <= 0 else row[k]
        elif activation == _RELU2:
            for k in range(size):
                to[k] = np.float32(0) if row[k] <= 0 else row[k] * row[k]
        elif activation == _SILU:
            for k in range(size):
                to[k] = row[k] * _sigmoid(row[k])
        elif activation == _GELU:
            for k in range(size):
                to[k] = row[k] * _normal(row[k])
        else:
            for k in range(size):
                cubic = row[k] + np.float32(0.044715) * row[k] * row[k] * row[k]
                to[k] = row[k] * _sigmoid(np.float32(1.5957691216057308) * cubic)


@float_subkernel
def _softmax(scores: Floats, start: int, stop: int, d_head: int) -> None:
    """softmax(scores / sqrt(d_head)) over scores[start:stop], in place.

    The indices are unsigned: numba then need not ask whether one counts from the end, and only then
    do the loops run in vector registers. A slice would do, but making one takes longer than a row.
    """
    scale = np.float32(1.0 / math.sqrt(d_head))
    highest = np.float32(-np.inf)
    for t in range(start, stop):
        highest = max(highest, scores[np.uint64(t)])
    total = np.float32(0)
    for t in range(start, stop):
        power = exp((scores[np.uint64(t)] - highest) * scale)
        scores[np.uint64(t)] = power
        total += power
    factor = np.float32(1) / total
    for t in range(start, stop):
        scores[np.uint64(t)] *= factor


class Keys(NamedTuple):
    """What the rows of a step attend to: blocks of a cache, the same for tokens of one row."""

    keys: Floats
    """(blocks, kv_heads, d_head, block size)"""
    values: Floats
    """(blocks, kv_heads, block size, width); width is d_head or more, whole vectors"""
    tables: Ints
    """(rows, most blocks)"""
    rows: Ints
    """(tokens,) which row of `tables` each token belongs to"""
    stops: Ints
    """(tokens,) how many keys of its row a token attends to"""
    window: int
    """only the last ones of these; 0: all"""


@float_subkernel
def attend(q: Floats, num_heads: int, to: Keys, out: Floats) -> None:
    """Attention of each token's queries, the first `num_heads` heads of its row of q.

    A block has as many tokens as a vector has lanes, or a single one. Blocks of a single token are
    for beams: a hypothesis takes over its parent's blocks by copying the table, and no key moves.
    """
    num_blocks, kv_heads, d_head, size = to.keys.shape
    keys, values, tables, rows, stops, window = to
    group, flat = num_heads // kv_heads, out.reshape(out.size)
    scores = np.empty((num_heads, tables.shape[1] * size), np.float32)
    part = np.empty(LANES, np.float32)
    by_token = keys.reshape((num_blocks, kv_heads, d_head * size))
    values_by_token = values.reshape((num_blocks, kv_heads, size * values.shape[3]))
    for b in range(q.shape[0]):
        table, stop = tables[rows[b]], stops[b]
        start = stop - window if 0 < window < stop else 0
        if size == 1:
            some = table[start:stop]
            _attend_by_token(q, b, group, by_token, values_by_token, some, scores, out)
        else:
            row = scores[0]
            for h in range(kv_heads):
                _attend_by_block(q, b, h, group, keys, values, table, start, stop, row, part, flat)


@parallel_kernel
def parallel_attend(q: Floats, num_heads: int, to: Keys, out: Floats) -> None:
    """`attend` to blocks of `LANES` tokens, the heads of all tokens shared among threads."""
    keys, values, tables, rows, stops, window = to
    kv_heads = keys.shape[1]
    group, flat = num_heads // kv_heads, out.reshape(out.size)
    for i in prange(q.shape[0] * kv_heads):
        b, h = np.int64(i) // kv_heads, np.int64(i) % kv_heads
        stop = stops[b]
        start = stop - window if 0 < window < stop else 0
        scores = np.empty(((stop - 1) // LANES + 1) * LANES, np.float32)
        part = np.empty(LANES, np.float32)
        table = tables[rows[b]]
        _attend_by_block(q, b, h, group, keys, values, table, start, stop, scores, part, flat)


@float_subkernel
def _attend_by_block(
    q: Floats,
    b: int,
    h: int,
    group: int,
    keys: Floats,
    values: Floats,
    table: Ints,
    start: int,
    stop: int,
    scores: Floats,
    part: Floats,
    out: Floats,
) -> None:
    """Token b with the heads that share the keys and values of head h."""
    kv_heads, d_head = keys.shape[1], keys.shape[2]
    for head in range(h * group, (h + 1) * group):
        q_at = b * q.shape[1] + head * d_head
        for j in range(start // LANES, (stop - 1) // LANES + 1):
            key_at = (table[j] * kv_heads + h) * d_head * LANES
            tile_1(q, q_at, 0, keys, key_at, LANES, d_head, scores, j * LANES, 0)
        _softmax(scores, start, stop, d_head)
        to = (b * kv_heads * group + head) * d_head
        _mean_values(scores, start, stop, values, table, h, part, out, to, d_head)


@float_subkernel
def _attend_by_token(
    q: Floats,
    b: int,
    group: int,
    keys: Floats,
    values: Floats,
    tokens: Ints,
    scores: Floats,
    out: Floats,
) -> None:
    """Token b with all its heads; keys and values (blocks, kv_heads, d_head) of single tokens."""
    kv_heads, size, number = keys.shape[1], np.uint64(keys.shape[2]), tokens.shape[0]
    row = np.uint64(b)
    for t in range(number):
        token = np.uint64(tokens[t])
        for head in range(kv_heads * group):
            h, at = np.uint64(head // group), np.uint64(head) * size
            score = np.float32(0)
            for d in range(size):
                score += q[row, at + d] * keys[token, h, d]
            scores[head, t] = score
    for head in range(kv_heads * group):
        _softmax(scores[head], 0, number, keys.shape[2])
    for k in range(out.shape[1]):
        out[row, k] = 0
    for t in range(number):
        token = np.uint64(tokens[t])
        for head in range(kv_heads * group):
            h, at, weight = np.uint64(head // group), np.uint64(head) * size, scores[head, t]
            for d in range(size):
                out[row, at + d] += weight * values[token, h, d]


@float_subkernel
def _mean_values(
    shares: Floats,
    start: int,
    stop: int,
    values: Floats,
    table: Ints,
    h: int,
    part: Floats,
    out: Floats,
    out_at: int,
    d_head: int,
) -> None:
    """The mean of the values, weighted by shares[start:stop]; out[out_at : out_at + d_head]."""
    kv_heads, width = values.shape[1], values.shape[3]
    for column in range(0, width, LANES):
        size = min(LANES, d_head - column)
        for j in range(start // LANES, (stop - 1) // LANES + 1):
            begin = max(start, j * LANES)
            count = min(stop, (j + 1) * LANES) - begin
            at = ((table[j] * kv_heads + h) * LANES + begin - j * LANES) * width + column
            is_first, to = begin == start, out_at + column
            if is_first and size == LANES:
                tile_1(shares, begin, 0, values, at, width, count, out, to, 0)
                continue
            tile_1(shares, begin, 0, values, at, width, count, part, 0, 0)
            place = np.uint64(to)
            if is_first:
                for d in range(np.uint64(size)):
                    out[place + d] = part[d]
            else:
                for d in range(np.uint64(size)):
                    out[place + d] += part[d]
