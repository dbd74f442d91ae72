"""The layers of a decoder on rows of hypotheses, compiled by numba for this processor.

Keys and values stay where their step wrote them: when hypotheses move, only the table of ancestors
changes. `ancestors[row, t]` is the row that held the row's hypothesis at step t. The beams of a
sentence share the keys of its source. Rows come in groups of `GROUP`; the last may be padding.
"""

import math

import numpy as np

from trafo.generate.packed.kernels import Floats, Ints, activate, exp
from trafo.generate.packed.layers import Linear, add, add_bias, norm
from trafo.generate.packed.tiles import LANES, tile_1, tile_6
from trafo.generate.packed_beam.weights import Beams, Decoder, Memory
from trafo.runtime.kernels import float_subkernel

GROUP = 6
"""rows of a tile"""


@float_subkernel
def hidden_states(decoder: Decoder, memory: Memory, beams: Beams, rows: Ints) -> Floats:
    """Final hidden states of these rows, in whole groups; keys and values go into the memory."""
    step = beams.ancestors.shape[1] - 1
    d_model = decoder.embeddings.shape[1]
    x = np.zeros(((rows.shape[0] + GROUP - 1) // GROUP * GROUP, d_model), np.float32)
    scale = np.float32(decoder.embedding_scale)
    for i in range(rows.shape[0]):
        for k in range(d_model):
            x[i, k] = decoder.embeddings[beams.ids[rows[i]], k] * scale + decoder.positions[step, k]
    for layer in range(memory.target_keys.shape[0]):
        x = _layer(x, decoder, memory, layer, rows, beams)
    return norm(x, decoder.final_norm, 0)


@float_subkernel
def _layer(
    x: Floats, decoder: Decoder, memory: Memory, layer: int, rows: Ints, beams: Beams
) -> Floats:
    """Self-attention, cross-attention, feed-forward, each with its norm before or after it."""
    is_pre = decoder.is_pre_norm
    first, second, third = decoder.norms
    h = norm(x, first, layer) if is_pre else x
    out = _attend_to_target(h, decoder, memory, layer, rows, beams.ancestors)
    x = add(x, linear(out, decoder.output, layer))
    x = x if is_pre else norm(x, first, layer)

    h = norm(x, second, layer) if is_pre else x
    out = _attend_to_source(h, decoder, memory, layer, rows, beams.sources)
    x = add(x, linear(out, decoder.cross_output, layer))
    x = x if is_pre else norm(x, second, layer)

    h = norm(x, third, layer) if is_pre else x
    up = linear(h, decoder.up, layer)
    activate(up, decoder.activation, up)
    x = add(x, linear(up, decoder.down, layer))
    return x if is_pre else norm(x, third, layer)


@float_subkernel
def _attend_to_target(
    h: Floats, decoder: Decoder, memory: Memory, layer: int, rows: Ints, ancestors: Ints
) -> Floats:
    """Keys and values are read from wherever the hypothesis was at each step."""
    keys, values = memory.target_keys[layer], memory.target_values[layer]
    num_heads, size = keys.shape[2:]
    step = ancestors.shape[1] - 1
    qkv = linear(h, decoder.qkv, layer)
    out = np.zeros_like(h)
    scores = np.empty((num_heads, step + 1), np.float32)
    for i in range(rows.shape[0]):
        row = rows[i]
        for head in range(num_heads):
            for d in range(size):
                k = (num_heads + head) * size + d
                keys[step, row, head, d] = qkv[i, k]
                values[step, row, head, d] = qkv[i, k + num_heads * size]
        _attend(qkv[i], keys, values, ancestors[row], scores, out[i])
    return out


@float_subkernel
def _attend(
    q: Floats, keys: Floats, values: Floats, rows: Ints, scores: Floats, out: Floats
) -> None:
    """softmax(q k / sqrt(d_head)) v of each head, over keys[t, rows[t]], t = 0, 1, ..."""
    num_heads, size = keys.shape[2:]
    for t in range(rows.shape[0]):
        key = keys[t, rows[t]]
        for head in range(num_heads):
            score = np.float32(0)
            for d in range(size):
                score += q[head * size + d] * key[head, d]
            scores[head, t] = score
    for head in range(num_heads):
        _softmax(scores[head], rows.shape[0], size)
    for t in range(rows.shape[0]):
        value = values[t, rows[t]]
        for head in range(num_heads):
            weight = scores[head, t]
            for d in range(size):
                out[head * size + d] += weight * value[head, d]


@float_subkernel
def _attend_to_source(
    h: Floats, decoder: Decoder, memory: Memory, layer: int, rows: Ints, sources: Ints
) -> Floats:
    """The same over the adjacent keys of a source, `LANES` at a time."""
    keys, values = memory.source_keys[layer], memory.source_values[layer]
    num_heads, size, num_columns = keys.shape[1:]
    width = values.shape[3]
    q = linear(h, decoder.cross_q, layer)
    out = np.zeros_like(h)
    scores, mean = np.empty(num_columns, np.float32), np.empty(width, np.float32)
    for i in range(rows.shape[0]):
        sentence = sources[rows[i]]
        length = memory.lengths[sentence]
        for head in range(num_heads):
            q_at, at = i * q.shape[1] + head * size, sentence * num_heads + head
            key_at, value_at = at * size * num_columns, at * values.shape[2] * width
            for first in range(0, length, LANES):
                tile_1(q, q_at, 0, keys, key_at + first, num_columns, size, scores, first, 0)
            _softmax(scores, length, size)
            for first in range(0, width, LANES):
                tile_1(scores, 0, 0, values, value_at + first, width, length, mean, first, 0)
            for d in range(size):
                out[i, head * size + d] = mean[d]
    return out


@float_subkernel
def _softmax(scores: Floats, number: int, size: int) -> None:
    """softmax(scores / sqrt(size)), in place, over the first `number`."""
    scale = np.float32(1.0 / math.sqrt(size))
    highest = scores[0]
    for t in range(1, number):
        highest = max(highest, scores[t])
    total = np.float32(0)
    for t in range(number):
        scores[t] = exp((scores[t] - highest) * scale)
        total += scores[t]
    for t in range(number):
        scores[t] /= total


@float_subkernel
def linear(x: Floats, weights: Linear, layer: int) -> Floats:
    """x W^T + b; the result may be wider than the matrix, whole panels."""
    panels = weights.floats[layer]
    out = np.empty((x.shape[0], panels.shape[0] * LANES), np.float32)
    product(x, panels, 0, panels.shape[0], out)
    add_bias(out, weights, layer)
    return out


@float_subkernel
def product(x: Floats, panels: Floats, first: int, last: int, out: Floats) -> None:
    """x times the panels in range(first, last)."""
    x_stride, out_stride, depth = x.shape[1], out.shape[1], panels.shape[1]
    for p in range(first, last):
        column, at = (p - first) * LANES, p * depth * LANES
        for b in range(0, x.shape[0], GROUP):
            place = b * out_stride + column
            tile_6(x, b * x_stride, x_stride, panels, at, LANES, depth, out, place, out_stride)
