"""The KV cache of all sequences, one allocation in blocks, and what a step reads.

A block holds keys as (d_head, BLOCK) and values as (BLOCK, d_head), so that both sums of attention
run over whole vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trafo.generate.engine.blocks import BLOCK
from trafo.models import CausalLM, TransformerBlock
from trafo.nn import MultiHeadSelfAttention

Ints = NDArray[np.int64]


class StepBatch(NamedTuple):
    """Tokens of several sequences (rows), concatenated."""

    ids: Ints
    """(tokens,)"""
    positions: Ints
    """(tokens,) in the sequence's window"""
    rows: Ints
    """(tokens,) which row of `tables` each belongs to"""
    tables: Ints
    """(rows, most blocks) the blocks of each row"""
    wanted: Ints
    """tokens after which logits are wanted"""
    source_tables: Ints = np.zeros((0, 0), np.int64)
    """(rows, most blocks) the blocks of each row's source, if it has one"""
    source_lengths: Ints = np.zeros(0, np.int64)
    """(rows,) tokens of the source"""


class PagedCache:
    """Keys (layers, blocks, kv_heads, d_head, BLOCK), values (..., BLOCK, d_head or a bit more)."""

    def __init__(self, model: CausalLM, num_blocks: int) -> None:
        heads = _heads(model)
        shape = (len(model.layers), num_blocks, heads.num_kv_heads)
        like = model.head_weight.detach()
        self.keys = like.new_zeros(*shape, heads.d_head, BLOCK)
        self.values = like.new_zeros(*shape, BLOCK, _width(heads.d_head))


def block_bytes(model: CausalLM) -> int:
    """Memory of one block."""
    heads, weight = _heads(model), model.head_weight
    size = heads.d_head + _width(heads.d_head)
    return size * len(model.layers) * heads.num_kv_heads * BLOCK * weight.element_size()


def _width(d_head: int) -> int:
    """Rounded up to whole vectors of the kernels."""
    return -(-d_head // BLOCK) * BLOCK


def _heads(model: CausalLM) -> MultiHeadSelfAttention:
    block = model.layers[0]
    assert isinstance(block, TransformerBlock)
    return block.attn
