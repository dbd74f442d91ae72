"""The layers of a model on rows of tokens, in one compiled call: no Python between the products.

The weights of all layers are one array for each kind. What a model does not have (a bias, a norm,
positions) is an empty array, so that one compiled function serves every model.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trafo.generate.engine.cache import StepBatch
from trafo.generate.packed import kernels
from trafo.generate.packed.int_kernels import int8_products
from trafo.generate.packed.kernels import Floats, Ints
from trafo.generate.packed.tiles import LANES
from trafo.runtime.kernels import float_kernel, float_subkernel

PLACEMENTS = ("none", "pre", "post")
_ONLY: Any = np.int64(0)  # a plain 0 is another type to numba: it would compile twice
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
    window: int
    """0: none"""


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
    feed_forward: FeedForward
    norms: tuple[Norm, Norm]
    placement: int
    """place in `PLACEMENTS`"""
    final_norm: Norm
    head: Linear


@float_kernel
def forward(weights: Weights, batch: StepBatch, keys: Floats, values: Floats) -> Floats:
    """Logits after the wanted tokens; keys and values of all tokens go into the cache."""
    x = norm(_rows(weights.embeddings, batch.ids), weights.embedding_norm, _ONLY)
    if weights.positions.shape[0]:
        x = add(x, _rows(weights.positions, batch.positions))
    for layer in range(keys.shape[0]):
        x = _block(x, weights, layer, batch, keys[layer], values[layer])
    return _linear(norm(_rows(x, batch.wanted), weights.final_norm, _ONLY), weights.head, _ONLY)


@float_subkernel
def _block(
    x: Floats, weights: Weights, layer: int, batch: StepBatch, keys: Floats, values: Floats
) -> Floats:
    before, after = weights.norms
    placement = weights.placement
    h = norm(x, before, layer) if placement == _PRE else x
    x = add(x, _attention(h, weights.attention, layer, batch, keys, values))
    x = norm(x, before, layer) if placement == _POST else x
    h = norm(x, after, layer) if placement == _PRE else x
    x = add(x, _feed_forward(h, weights.feed_forward, layer))
    return norm(x, after, layer) if placement == _POST else x


@float_subkernel
def _attention(
    x: Floats, attention: Attention, layer: int, batch: StepBatch, keys: Floats, values: Floats
) -> Floats:
    num_heads, kv_heads, d_head = attention.num_heads, keys.shape[1], keys.shape[2]
    qkv = _linear(x, attention.qkv, layer)
    q_norm, k_norm = attention.q_norm, attention.k_norm
    if q_norm.gain.shape[0]:
        kernels.normalize_heads(qkv, _ONLY, num_heads, q_norm.gain[layer], q_norm.eps)
    if k_norm.gain.shape[0]:
        first = num_heads * d_head
        kernels.normalize_heads(qkv, first, kv_heads, k_norm.gain[layer], k_norm.eps)
    if attention.cos.shape[0]:
        kernels.rotate(qkv, num_heads + kv_heads, attention.cos, attention.sin, batch.positions)
    kernels.store(qkv, num_heads, keys, values, batch)
    out = np.empty((x.shape[0], num_heads * d_head), np.float32)
    kernels.attend(qkv, num_heads, keys, values, batch, attention.window, out)
    return _linear(out, attention.output, layer)


@float_subkernel
def _feed_forward(x: Floats, feed_forward: FeedForward, layer: int) -> Floats:
    up = _linear(x, feed_forward.up, layer)
    inner = np.empty((x.shape[0], feed_forward.size), np.float32)
    kernels.activate(up, feed_forward.activation, inner)
    return _linear(inner, feed_forward.down, layer)


@float_subkernel
def _linear(x: Floats, linear: Linear, layer: int) -> Floats:
    """x W^T + b; the result may be wider than the matrix: whole panels."""
    num_panels = max(linear.floats.shape[1], linear.ints.shape[1])
    out = np.empty((x.shape[0], num_panels * LANES), np.float32)
    if linear.scales.shape[0]:
        int8_products(x, linear.ints[layer], linear.scales[layer], out)
    else:
        kernels.products(x, linear.floats[layer], out)
    add_bias(out, linear, layer)
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
