"""One step of the engine with compiled kernels: what `ReadableStep` computes, fast.

For float32 models on the CPU. The weights are copied into panels when the step is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from trafo.errors import ConfigError
from trafo.generate.engine.blocks import BLOCK
from trafo.generate.engine.cache import PagedCache, StepBatch
from trafo.generate.engine.scheduler import Weights
from trafo.generate.packed import kernels
from trafo.generate.packed.kernels import Floats
from trafo.generate.packed.panels import Rows, linear
from trafo.generate.packed.tiles import LANES
from trafo.models import CausalLM, TransformerBlock
from trafo.nn import (
    FeedForward,
    LayerNorm,
    LearnedPositions,
    MultiHeadSelfAttention,
    RMSNorm,
    SinusoidalPositions,
    SwiGLU,
)
from trafo.nn.activation import ACTIVATIONS
from trafo.runtime.kernels import kernel_threads

Layer = tuple[Floats, Floats]

assert BLOCK == LANES, "a block of the cache is one vector of the kernels"


def can_pack(model: CausalLM) -> bool:
    """Whether the kernels support this model's dtype and device."""
    return all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())


class PackedStep:
    """Reads the tokens of a batch; returns the logits that are wanted."""

    def __init__(self, model: CausalLM, weights: Weights = "float32") -> None:
        if not can_pack(model):
            weight = model.head_weight
            what = f"compiled kernels are for float32 on the CPU, not {weight.dtype} on"
            raise ConfigError(f"{what} {weight.device}", hint="use kernel='readable'")
        self.num_threads: int | None = None
        """None: as many as torch uses"""
        self._embeddings = _array(model.token_embeddings.weight)
        self._embedding_norm = _norm(model.ln_embeddings)
        self._positions = _position_table(model.position_embeddings)
        self._blocks = [_Block(cast(TransformerBlock, block), weights) for block in model.layers]
        self._norm = _norm(model.ln_final)
        self._head = linear([model.head_weight], [None], weights)
        self._vocab_size = model.head_weight.shape[0]

    def __call__(self, batch: StepBatch, cache: PagedCache) -> Float[Tensor, "wanted vocab"]:
        """Logits after each wanted token."""
        with kernel_threads(self.num_threads or torch.get_num_threads()):
            logits = self._run(batch, cache.keys.numpy(), cache.values.numpy())
        return torch.from_numpy(logits)[:, : self._vocab_size]

    def _run(self, batch: StepBatch, keys: Floats, values: Floats) -> Floats:
        places = _Places(batch)
        x: Floats = self._embeddings[batch.ids]
        if self._embedding_norm is not None:
            x = self._embedding_norm(x)
        if self._positions is not None:
            x = x + self._positions[batch.positions]
        for index, block in enumerate(self._blocks):
            x = block(x, (keys[index], values[index]), places)
        x = x[batch.wanted]
        return self._head(x if self._norm is None else self._norm(x))


class _Places:
    """Where in the cache the tokens of a batch go."""

    def __init__(self, batch: StepBatch) -> None:
        self.batch = batch
        self.blocks = batch.tables[batch.rows, batch.positions // BLOCK]
        self.offsets = batch.positions % BLOCK


class _Block:
    """One `TransformerBlock`."""

    def __init__(self, block: TransformerBlock, weights: Weights) -> None:
        self._attention = _Attention(block.attn, weights)
        self._feed_forward = _feed_forward(block.ffn, weights)
        self._norms = _norm(block.ln1), _norm(block.ln2)
        self._placement = block.norm_placement

    def __call__(self, x: Floats, layer: Layer, places: _Places) -> Floats:
        x = self._residual(x, lambda h: self._attention(h, layer, places), 0)
        return self._residual(x, self._feed_forward, 1)

    def _residual(self, x: Floats, sublayer: Rows, index: int) -> Floats:
        norm, width = self._norms[index], x.shape[1]
        if norm is None or self._placement == "none":
            return x + sublayer(x)[:, :width]
        if self._placement == "pre":
            return x + sublayer(norm(x))[:, :width]
        return norm(x + sublayer(x)[:, :width])


class _Attention:
    """One `MultiHeadSelfAttention`."""

    def __init__(self, attn: MultiHeadSelfAttention, weights: Weights) -> None:
        inputs, output = (attn.q_proj, attn.k_proj, attn.v_proj), attn.output_proj
        self._qkv = linear(
            [each.weight for each in inputs], [each.bias for each in inputs], weights
        )
        self._output = linear([output.weight], [output.bias], weights)
        self._norms = _head_norm(attn.q_norm), _head_norm(attn.k_norm)
        self._heads, self._kv_heads, self._d_head = attn.num_heads, attn.num_kv_heads, attn.d_head
        self._window = attn.attention.window or 0
        self._rope = None
        if attn.rope is not None:
            self._rope = _array(attn.rope.cos), _array(attn.rope.sin)

    def __call__(self, x: Floats, layer: Layer, places: _Places) -> Floats:
        qkv, batch = self._qkv(x), places.batch
        firsts = (0, self._heads), (self._heads * self._d_head, self._kv_heads)
        for norm, (first, number) in zip(self._norms, firsts, strict=True):
            if norm is not None:
                kernels.normalize_heads(qkv, first, number, *norm)
        if self._rope is not None:
            kernels.rotate(qkv, self._heads + self._kv_heads, *self._rope, batch.positions)
        kernels.store(qkv, self._heads, *layer, places.blocks, places.offsets)
        out = np.empty((len(x), self._heads * self._d_head), np.float32)
        where = batch.tables, batch.rows, batch.positions
        kernels.attend(qkv, self._heads, *layer, *where, self._window, out)
        return self._output(out)


def _feed_forward(ffn: Module, weights: Weights) -> Rows:
    if isinstance(ffn, SwiGLU):
        up = linear([ffn.w1.weight, ffn.w3.weight], [None, None], weights)
        down = linear([ffn.w2.weight], [None], weights)
        size = ffn.w1.weight.shape[0]

        def swiglu(x: Floats) -> Floats:
            gated = np.empty((len(x), size), np.float32)
            kernels.silu_gate(up(x), gated)
            return down(gated)

        return swiglu
    assert isinstance(ffn, FeedForward)
    first = linear([ffn.w1.weight], [ffn.w1.bias], weights)
    second = linear([ffn.w2.weight], [ffn.w2.bias], weights)
    activation = _by_torch(ACTIVATIONS[ffn.activation])
    return lambda x: second(activation(first(x)))


def _by_torch(function: Callable[[Tensor], Tensor]) -> Rows:
    """Elementwise functions are fast enough in torch."""
    return lambda rows: function(torch.from_numpy(rows)).numpy()


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


def _head_norm(norm: Module | None) -> tuple[Floats, float] | None:
    if norm is None:
        return None
    assert isinstance(norm, RMSNorm)
    return _array(norm.weight), norm.eps


def _position_table(positions: Module | None) -> Floats | None:
    if positions is None:
        return None
    if isinstance(positions, LearnedPositions):
        return _array(positions.weight)
    assert isinstance(positions, SinusoidalPositions)
    return _array(positions.table)


def _array(tensor: Tensor) -> Floats:
    return np.ascontiguousarray(tensor.detach().numpy())
