"""The layers of a model on rows of tokens, in one compiled call: no Python between the products.

The weights of all layers are one array for each kind. What a model does not have (a bias, a norm,
positions) is an empty array, so that one compiled function serves every model.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trafo.generate.engine.cache import StepBatch
from trafo.generate.packed import kernels
from trafo.generate.packed.int_kernels import int8_products, parallel_int8_products
from trafo.generate.packed.kernels import Floats, Ints, Keys
from trafo.generate.packed.tiles import LANES
from trafo.runtime.kernels import float_kernel, float_subkernel

PLACEMENTS = ("none", "pre", "post")
ONLY: Any = np.int64(0)  # a plain 0 is another type to numba: it would compile twice
_PRE, _POST = PLACEMENTS.index("pre"), PLACEMENTS.index("post")


class Linear(NamedTuple):
    """x W^T + b in every layer: float32, or int8 with a scale for each output."""

    floats: Floats
    """(layers, out / LANES, in, LANES)"""
    ints: NDArray[np.int8]
    """(layers, out / LANES, in / 2, LANES, 2)"""
    scales: Floats
    """(layers, out)"""
    bias: Floats
    """(layers, out)"""


class Norm(NamedTuple):
    """RMSNorm, or with a shift LayerNorm; gain and shift (layers, in)."""

    gain: Floats
    shift: Floats
    eps: float


class Attention(NamedTuple):
    """The projections of q, k and v are stacked."""

    qkv: Linear
    output: Linear
    q_norm: Norm
    k_norm: Norm
    cos: Floats
    """(positions, d_head / 2)"""
    sin: Floats
    num_heads: int
    num_kv_heads: int
    d_head: int
    window: int
    """0: none"""


class CrossAttention(NamedTuple):
    """The projections of a decoder's queries to the source, whose keys lie in a cache."""

    q: Linear
    output: Linear


class FeedForward(NamedTuple):
    """For SwiGLU, `up` stacks the gate (W1) and the values (W3)."""

    up: Linear
    down: Linear
    activation: int
    """place in `kernels.ACTIVATIONS`"""
    size: int


class Weights(NamedTuple):
    """Everything that the step of a model reads."""

    embeddings: Floats
    embedding_norm: Norm
    positions: Floats
    attention: Attention
    cross: CrossAttention
    feed_forward: FeedForward
    norms: tuple[Norm, Norm, Norm]
    """of attention, cross-attention and feed-forward"""
    placement: int
    """place in `PLACEMENTS`"""
    final_norm: Norm
    head: Linear


class Cache(NamedTuple):
    """Keys and values in all layers: of the tokens so far, and of the sources."""

    keys: Floats
    """(layers, blocks, kv_heads, d_head, block size)"""
    values: Floats
    """(layers, blocks, kv_heads, block size, width)"""
    source_keys: Floats
    """the same of the sources; no layers if the model has no source"""
    source_values: Floats


@float_kernel
def forward(weights: Weights, batch: StepBatch, cache: Cache) -> Floats:
    """Logits after the wanted tokens; keys and values of all tokens go into the cache."""
    x = hidden_states(weights, batch, cache, True)
    x = norm(_rows(x, batch.wanted), weights.final_norm, ONLY)
    return linear(x, weights.head, ONLY, True)


@float_subkernel
def hidden_states(weights: Weights, batch: StepBatch, cache: Cache, in_parallel: bool) -> Floats:
    """The states of all tokens after the last layer, without the final norm."""
    x = norm(_rows(weights.embeddings, batch.ids), weights.embedding_norm, ONLY)
    if weights.positions.shape[0]:
        x = add(x, _rows(weights.positions, batch.positions))
    for layer in range(cache.keys.shape[0]):
        x = _block(x, weights, layer, batch, cache, in_parallel)
    return x


@float_subkernel
def _block(
    x: Floats, weights: Weights, layer: int, batch: StepBatch, cache: Cache, in_parallel: bool
) -> Floats:
    """Attention, cross-attention to a source, feed-forward, each with its norm before or after."""
    first, second, third = weights.norms
    placement = weights.placement
    h = norm(x, first, layer) if placement == _PRE else x
    x = add(x, _attention(h, weights.attention, layer, batch, cache, in_parallel))
    x = norm(x, first, layer) if placement == _POST else x
    if cache.source_keys.shape[0]:
        h = norm(x, second, layer) if placement == _PRE else x
        num_heads = weights.attention.num_heads
        x = add(x, _attend_to_source(h, weights.cross, num_heads, layer, batch, cache, in_parallel))
        x = norm(x, second, layer) if placement == _POST else x
    h = norm(x, third, layer) if placement == _PRE else x
    x = add(x, _feed_forward(h, weights.feed_forward, layer, in_parallel))
    return norm(x, third, layer) if placement == _POST else x


@float_subkernel
def _attention(
    x: Floats, attention: Attention, layer: int, batch: StepBatch, cache: Cache, in_parallel: bool
) -> Floats:
    keys, values = cache.keys[layer], cache.values[layer]
    num_heads, kv_heads, d_head = attention.num_heads, keys.shape[1], keys.shape[2]
    qkv = linear(x, attention.qkv, layer, in_parallel)
    q_norm, k_norm = attention.q_norm, attention.k_norm
    if q_norm.gain.shape[0]:
        kernels.normalize_heads(qkv, ONLY, num_heads, q_norm.gain[layer], q_norm.eps)
    if k_norm.gain.shape[0]:
        first = num_heads * d_head
        kernels.normalize_heads(qkv, first, kv_heads, k_norm.gain[layer], k_norm.eps)
    if attention.cos.shape[0]:
        kernels.rotate(qkv, num_heads + kv_heads, attention.cos, attention.sin, batch.positions)
    kernels.store(qkv, num_heads, keys, values, batch)
    stops = batch.positions + 1
    to = Keys(keys, values, batch.tables, batch.rows, stops, attention.window)
    return linear(_attend(qkv, num_heads, to, in_parallel), attention.output, layer, in_parallel)


@float_subkernel
def _attend_to_source(
    x: Floats,
    cross: CrossAttention,
    num_heads: int,
    layer: int,
    batch: StepBatch,
    cache: Cache,
    in_parallel: bool,
) -> Floats:
    q = linear(x, cross.q, layer, in_parallel)
    keys, values = cache.source_keys[layer], cache.source_values[layer]
    stops = batch.source_lengths[batch.rows]
    to = Keys(keys, values, batch.source_tables, batch.rows, stops, ONLY)
    return linear(_attend(q, num_heads, to, in_parallel), cross.output, layer, in_parallel)


@float_subkernel
def _attend(q: Floats, num_heads: int, to: Keys, in_parallel: bool) -> Floats:
    out = np.empty((q.shape[0], num_heads * to.keys.shape[2]), np.float32)
    if in_parallel and to.keys.shape[3] == LANES:
        kernels.parallel_attend(q, num_heads, to, out)
    else:
        kernels.attend(q, num_heads, to, out)
    return out


@float_subkernel
def _feed_forward(x: Floats, feed_forward: FeedForward, layer: int, in_parallel: bool) -> Floats:
    up = linear(x, feed_forward.up, layer, in_parallel)
    # In place where nothing is left over: the hidden layer is what least fits into the cache.
    fits = up.shape[1] == feed_forward.size
    inner = up if fits else np.empty((x.shape[0], feed_forward.size), np.float32)
    kernels.activate(up, feed_forward.activation, inner)
    return linear(inner, feed_forward.down, layer, in_parallel)


@float_subkernel
def linear(x: Floats, weights: Linear, layer: int, in_parallel: bool) -> Floats:
    """x W^T + b; the result may be wider than the matrix: whole panels."""
    num_panels = max(weights.floats.shape[1], weights.ints.shape[1])
    out = np.empty((x.shape[0], num_panels * LANES), np.float32)
    if weights.scales.shape[0]:
        ints, scales = weights.ints[layer], weights.scales[layer]
        if in_parallel:
            parallel_int8_products(x, ints, scales, out)
        else:
            int8_products(x, ints, scales, out)
    elif in_parallel:
        kernels.parallel_products(x, weights.floats[layer], out)
    else:
        kernels.products(x, weights.floats[layer], out)
    add_bias(out, weights, layer)
    return out


@float_subkernel
def add_bias(out: Floats, linear: Linear, layer: int) -> None:
    """To every row, if there is one."""
    if linear.bias.shape[0]:
        for b in range(out.shape[0]):
            for k in range(out.shape[1]):
                out[b, k] += linear.bias[layer, k]


@float_subkernel
def norm(x: Floats, weights: Norm, layer: int) -> Floats:
    """RMSNorm, LayerNorm, or x itself where there is none."""
    if not weights.gain.shape[0]:
        return x
    out = np.empty_like(x)
    if weights.shift.shape[0]:
        kernels.layer_norm(x, weights.gain[layer], weights.shift[layer], weights.eps, out)
    else:
        kernels.rms_norm(x, weights.gain[layer], weights.eps, out)
    return out


@float_subkernel
def _rows(table: Floats, rows: Ints) -> Floats:
    out = np.empty((rows.shape[0], table.shape[1]), np.float32)
    for b in range(rows.shape[0]):
        for k in range(table.shape[1]):
            out[b, k] = table[rows[b], k]
    return out


@float_subkernel
def add(x: Floats, wide: Floats) -> Floats:
    """x + wide, whose last columns are not needed."""
    out = np.empty_like(x)
    for b in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[b, k] = x[b, k] + wide[b, k]
    return out
