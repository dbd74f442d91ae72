"""One decoding step of a `CausalLM` with compiled kernels.

The readable model is the reference: this uses its parts and its weights (in place, without a copy)
and computes for one token of each row what the model computes; tests compare the two for every
switch. It is for float32 on the CPU, where the time goes into reading weights and into many small
calls. Prompts are still read by the model itself, whose matrix products are made for many rows.
"""

from collections.abc import Callable
from threading import Lock
from typing import cast

import numba
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.errors import ConfigError
from trafo.generate import kernels
from trafo.generate.kernels import Floats, Ints
from trafo.models import CausalLM, TransformerBlock
from trafo.nn import (
    FeedForward,
    KVCache,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadSelfAttention,
    RMSNorm,
    SinusoidalPositions,
    SwiGLU,
)
from trafo.nn.activation import ACTIVATIONS
from trafo.nn.swiglu import silu_gate

Rows = Callable[[Floats], Floats]

# Not every threading layer of numba is thread-safe.
_ONE_AT_A_TIME = Lock()


def can_compile(model: CausalLM) -> bool:
    """Whether the kernels support this model's dtype and device."""
    return all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())


class CompiledStep:
    """Computes what `decode_one_token` does. Made for each batch: it only refers to weights."""

    def __init__(self, model: CausalLM) -> None:
        if not can_compile(model):
            weight = model.head_weight
            raise ConfigError(
                f"compiled kernels are for float32 on the CPU, not {weight.dtype} on "
                f"{weight.device}",
                hint="use kernel='readable'",
            )
        self._embeddings = _array(model.token_embeddings.weight)
        self._embedding_norm = _norm(model.ln_embeddings)
        self._positions = _position_table(model.position_embeddings)
        self._blocks = [_Block(cast(TransformerBlock, block)) for block in model.layers]
        self._norm = _norm(model.ln_final)
        self._head = _matrix(model.head_weight, None)
        self._last_position = model.context_length - 1

    def __call__(
        self,
        cache: KVCache,
        ids: Int[Tensor, "batch 1"],
        counts: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch vocab"]:
        """Logits after one more id per row; rows with count 0 write past the end."""
        with _ONE_AT_A_TIME:
            numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
            slots = np.minimum(cache.lengths.numpy(), cache.capacity)
            logits = self._run(cache, ids.numpy()[:, 0], slots)
        cache.lengths = cache.lengths + (1 if counts is None else counts)
        return torch.from_numpy(logits)

    def _run(self, cache: KVCache, ids: Ints, slots: Ints) -> Floats:
        positions = np.minimum(slots, self._last_position)
        x: Floats = self._embeddings[ids]
        if self._embedding_norm is not None:
            x = self._embedding_norm(x)
        if self._positions is not None:
            x = x + self._positions[positions]
        keys, values = cache.keys.numpy(), cache.values.numpy()
        for index, block in enumerate(self._blocks):
            x = block(x, keys[index], values[index], slots, positions)
        return self._head(x if self._norm is None else self._norm(x))


class _Block:
    """One `TransformerBlock`."""

    def __init__(self, block: TransformerBlock) -> None:
        self._attention = _Attention(block.attn)
        self._feed_forward = _feed_forward(block.ffn)
        self._norms = _norm(block.ln1), _norm(block.ln2)
        self._placement = block.norm_placement

    def __call__(
        self, x: Floats, keys: Floats, values: Floats, slots: Ints, positions: Ints
    ) -> Floats:
        x = self._residual(x, lambda h: self._attention(h, keys, values, slots, positions), 0)
        return self._residual(x, self._feed_forward, 1)

    def _residual(self, x: Floats, sublayer: Rows, index: int) -> Floats:
        norm = self._norms[index]
        if norm is None or self._placement == "none":
            return x + sublayer(x)
        return x + sublayer(norm(x)) if self._placement == "pre" else norm(x + sublayer(x))


class _Attention:
    """One `MultiHeadSelfAttention`."""

    def __init__(self, attn: MultiHeadSelfAttention) -> None:
        self._q, self._k = _linear(attn.q_proj), _linear(attn.k_proj)
        self._v, self._output = _linear(attn.v_proj), _linear(attn.output_proj)
        self._q_norm, self._k_norm = _norm(attn.q_norm), _norm(attn.k_norm)
        self._d_head = attn.d_head
        self._window = attn.attention.window or 0
        self._rope = None
        if attn.rope is not None:
            self._rope = _array(attn.rope.cos), _array(attn.rope.sin)

    def __call__(
        self, x: Floats, keys: Floats, values: Floats, slots: Ints, positions: Ints
    ) -> Floats:
        q = self._place(self._q(x), self._q_norm, positions)
        k = self._place(self._k(x), self._k_norm, positions)
        v = self._v(x).reshape(k.shape)
        heads = kernels.attend(q, k, v, keys, values, slots, self._window)
        return self._output(heads.reshape(len(x), -1))

    def _place(self, flat: Floats, norm: Rows | None, positions: Ints) -> Floats:
        """Split into heads, normalize, rotate."""
        heads = flat.reshape(len(flat), -1, self._d_head)
        if norm is not None:
            heads = norm(heads.reshape(-1, self._d_head)).reshape(heads.shape)
        if self._rope is not None:
            kernels.rotate(heads, *self._rope, positions)
        return heads


def _feed_forward(ffn: Module) -> Rows:
    if isinstance(ffn, SwiGLU):
        w1, w2, w3 = _linear(ffn.w1), _linear(ffn.w2), _linear(ffn.w3)
        gate = _by_torch(silu_gate)
        return lambda x: w2(gate(w1(x), w3(x)))
    assert isinstance(ffn, FeedForward)
    first, second = _linear(ffn.w1), _linear(ffn.w2)
    activation = _by_torch(ACTIVATIONS[ffn.activation])
    return lambda x: second(activation(first(x)))


def _by_torch(function: Callable[..., Tensor]) -> Callable[..., Floats]:
    """Elementwise functions are fast enough in torch."""
    return lambda *rows: function(*map(torch.from_numpy, rows)).numpy()


def _linear(layer: Linear) -> Rows:
    return _matrix(layer.weight, layer.bias)


def _matrix(weight: Tensor, bias: Tensor | None) -> Rows:
    matrix, shift = _array(weight), None if bias is None else _array(bias)

    def apply(x: Floats) -> Floats:
        out = np.empty((len(x), len(matrix)), np.float32)
        kernels.products(x, matrix, out)
        if shift is not None:
            out += shift
        return out

    return apply


def _norm(norm: Module | None) -> Rows | None:
    if norm is None:
        return None
    assert isinstance(norm, RMSNorm | LayerNorm)
    gain, eps = _array(norm.weight), norm.eps
    shift = _array(norm.bias) if isinstance(norm, LayerNorm) else None

    def apply(x: Floats) -> Floats:
        out = np.empty_like(x)
        if shift is None:
            kernels.rms_norm(x, gain, eps, out)
        else:
            kernels.layer_norm(x, gain, shift, eps, out)
        return out

    return apply


def _position_table(positions: Module | None) -> Floats | None:
    if positions is None:
        return None
    if isinstance(positions, LearnedPositions):
        return _array(positions.weight)
    assert isinstance(positions, SinusoidalPositions)
    return _array(positions.table)


def _array(tensor: Tensor) -> Floats:
    """A numpy view of the same memory."""
    return np.ascontiguousarray(tensor.detach().numpy())
