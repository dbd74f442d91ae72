"""The paged KV cache of all sequences (PagedAttention, Kwon et al., 2023), and what a step reads.

The cache is one allocation, cut into blocks of `BLOCK` tokens. A block holds keys as (d_head,
BLOCK) and values as (BLOCK, d_head), so that both sums of attention run over whole vectors. A
sequence gets all blocks that it may need when it starts, so it is never preempted. Full blocks
may be shared (prefix caching): a tree of blocks, keyed by their tokens, finds the longest prefix
of a prompt that is in the cache. The blocks of finished sequences stay in the tree until the room
is needed, least recently used first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


BLOCK = 16
"""tokens in a block"""

_ROOT = 0
_Key = tuple[int, tuple[int, ...]]


@dataclass
class Pages:
    """The blocks of one sequence, in order."""

    blocks: list[int]
    num_cached: int
    """tokens that were in the cache already"""
    _node: int = _ROOT
    _num_indexed: int = 0
    _coming: _Key | None = None


@dataclass
class BlockPool:
    """Allocates and frees blocks."""

    num_blocks: int
    _free: list[int] = field(init=False)
    _users: list[int] = field(init=False)
    _tree: dict[_Key, tuple[int, int]] = field(default_factory=dict)
    _keys: dict[int, _Key] = field(default_factory=dict)
    _idle: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _coming: dict[_Key, Pages] = field(default_factory=dict)
    _next_node: int = _ROOT + 1

    def __post_init__(self) -> None:
        self._free = list(reversed(range(self.num_blocks)))
        self._users = [0] * self.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that no sequence uses."""
        return len(self._free) + len(self._idle)

    def allocate(self, ids: Sequence[int], num_tokens: int) -> Pages | None:
        """Blocks for `num_tokens` tokens that begin with `ids`; None: there are not enough.

        The last id is never taken from the cache: its logits are wanted.
        """
        node, shared = self._match(ids)
        taken = sum(self._users[block] == 0 for block in shared)  # idle ones that come back
        needed = _blocks_for(num_tokens) - len(shared)
        if needed > self.num_free - taken:
            return None
        for block in shared:
            self._idle.pop(block, None)
            self._users[block] += 1
        own = [self._take() for _ in range(needed)]
        pages = Pages(shared + own, len(shared) * BLOCK, node, len(shared))
        self._expect(pages, ids)
        return pages

    def is_coming(self, ids: Sequence[int]) -> bool:
        """Whether another sequence is reading the next block of these ids: waiting saves work."""
        node, shared = self._match(ids)
        key = _key(node, ids, len(shared))
        return key is not None and key in self._coming

    def commit(self, pages: Pages, ids: Sequence[int], num_read: int) -> None:
        """The first `num_read` of these ids are in the cache: full blocks may be shared now."""
        while (pages._num_indexed + 1) * BLOCK <= num_read:
            key = _key(pages._node, ids, pages._num_indexed, whole=True)
            assert key is not None
            self._unexpect(pages)
            pages._node = self._index(key, pages.blocks[pages._num_indexed])
            pages._num_indexed += 1
            self._expect(pages, ids)

    def release(self, pages: Pages) -> None:
        """Free all blocks of a sequence; those in the tree stay there while there is room."""
        self._unexpect(pages)
        # The deepest first: a block is only found through those before it.
        for block in reversed(pages.blocks):
            self._users[block] -= 1
            if self._users[block]:
                continue
            if block in self._keys:
                self._idle[block] = None
            else:
                self._free.append(block)
        pages.blocks = []

    def _match(self, ids: Sequence[int]) -> tuple[int, list[int]]:
        """The longest prefix in the tree: its last node, its blocks."""
        node, blocks = _ROOT, list[int]()
        while (key := _key(node, ids, len(blocks))) is not None and key in self._tree:
            node, block = self._tree[key]
            blocks.append(block)
        return node, blocks

    def _index(self, key: _Key, block: int) -> int:
        """Put a full block into the tree, unless an equal one is there; returns its node."""
        if key in self._tree:
            return self._tree[key][0]
        node, self._next_node = self._next_node, self._next_node + 1
        self._tree[key] = node, block
        self._keys[block] = key
        return node

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            del self._tree[self._keys.pop(block)]
        self._users[block] = 1
        return block

    def _expect(self, pages: Pages, ids: Sequence[int]) -> None:
        key = _key(pages._node, ids, pages._num_indexed)
        if key is not None and key not in self._coming:
            pages._coming = key
            self._coming[key] = pages

    def _unexpect(self, pages: Pages) -> None:
        if pages._coming is not None and self._coming.get(pages._coming) is pages:
            del self._coming[pages._coming]
        pages._coming = None


def _key(node: int, ids: Sequence[int], number: int, *, whole: bool = False) -> _Key | None:
    """Node and tokens of a block; None: not full, or it holds the last id (unless `whole`)."""
    end = (number + 1) * BLOCK
    if end > len(ids) - (not whole):
        return None
    return node, tuple(ids[end - BLOCK : end])


def _blocks_for(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK)
