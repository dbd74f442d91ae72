"""The attention itself: softmax(Q K^T / sqrt(d)) V, without its projections.

Two products for each head, each 2 (queries) (d_head) (keys) FLOPs: the only part of a Transformer
that grows with the square of the length. What it keeps for the backward pass depends on how it is
computed: the fused kernel keeps a number for each query and head, everything else the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trafo.account.parts import Component, Kept, MatrixProduct

Path = Literal["flash", "math"]


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """Who looks at whom, in numbers."""

    batch: int
    heads: int
    kv_heads: int
    d_head: int
    queries: int
    keys: int
    window: int | None = None
    """None: every query meets every key; masked pairs are computed and thrown away"""

    @property
    def num_blocks(self) -> int:
        """A window cuts the sequence into blocks as long as itself, the last one filled up."""
        return 1 if self.window is None else -(-self.queries // self.window)

    @property
    def block_queries(self) -> int:
        return self.queries if self.window is None else self.window

    @property
    def block_keys(self) -> int:
        """A causal block sees itself and the block before it."""
        return self.keys if self.window is None else 2 * self.window

    @property
    def times(self) -> int:
        """Small attentions, all independent of each other."""
        return self.batch * self.heads * self.num_blocks

    @property
    def weights(self) -> int:
        """Numbers between 0 and 1, one for each pair of query and key."""
        return self.times * self.block_queries * self.block_keys


def attention_path(shape: AttentionShape, dropout: float) -> Path:
    """What torch does when it is asked: its fused kernel knows neither dropout nor blocks."""
    return "math" if dropout or shape.window is not None else "flash"


def attention_component(
    shape: AttentionShape, path: Path, *, dropout: float, training: bool, number_bytes: int
) -> Component:
    kept = _kept(shape, path, bool(dropout), number_bytes) if training else ()
    return Component(
        "attention",
        products=_products(shape),
        kept=kept,
        workspace_bytes=_workspace(shape, path, bool(dropout), training) * number_bytes,
    )


def _products(shape: AttentionShape) -> tuple[MatrixProduct, ...]:
    queries, keys = shape.block_queries, shape.block_keys
    return (
        MatrixProduct("Q Kᵀ", queries, shape.d_head, keys, times=shape.times),
        MatrixProduct("weights V", queries, keys, shape.d_head, times=shape.times),
    )


def _kept(shape: AttentionShape, path: Path, dropout: bool, number_bytes: int) -> tuple[Kept, ...]:
    rows = shape.batch * shape.heads * shape.queries
    merged = Kept("heads, merged", rows * shape.d_head, number_bytes)
    if path == "flash":
        kv = 2 * shape.batch * shape.kv_heads * shape.keys * shape.d_head
        return (
            Kept("queries", rows * shape.d_head, number_bytes),
            Kept("keys, values", kv, number_bytes),
            merged,
            Kept("log of the sum of exp", rows, 4),
        )
    # Written out, the heads are copied into blocks, and a shared key once for each query head.
    sides = shape.times * (shape.block_queries + 2 * shape.block_keys) * shape.d_head
    inputs = Kept("queries, keys, values", sides, number_bytes)
    return (inputs, *_kept_weights(shape, dropout, number_bytes), merged)


def _kept_weights(shape: AttentionShape, dropout: bool, number_bytes: int) -> tuple[Kept, ...]:
    """softmax needs its result, the product with the values its input, dropout its mask."""
    dropped = (Kept("dropout mask", shape.weights, number_bytes),) if dropout else ()
    weights = Kept("weights", shape.weights, number_bytes)
    again = (Kept("weights, some dropped", shape.weights, number_bytes),) if dropout else ()
    return (weights, *dropped, *again)


def _workspace(shape: AttentionShape, path: Path, dropout: bool, training: bool) -> int:
    """Numbers for a moment: gradients of queries, keys and values, and of the weights."""
    rows = shape.batch * shape.heads * (shape.queries + 2 * shape.keys)
    inputs = rows * shape.d_head
    if path == "flash":
        return inputs if training else inputs // 3
    if not training:
        return inputs + 3 * shape.weights
    # On the way back, step by step; with dropout, a mask has been freed when it gets tight.
    steps = 2 - dropout
    return inputs + steps * shape.weights
