"""The decoder of beam search with compiled kernels: what `CachedDecoder` computes, fast.

Every token has a block of its own in the cache. A hypothesis that continues another takes over its
table of blocks, so no key is ever copied, and all hypotheses share the keys of prompt and source.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch.nn import functional

from trafo.generate.beam_decoder import BeamBatch, Continuations, empty_continuations
from trafo.generate.engine.cache import StepBatch
from trafo.generate.packed.choose import Doubles, decode_and_choose
from trafo.generate.packed.kernels import Ints
from trafo.generate.packed.layers import Cache, Weights, forward
from trafo.generate.packed.tiles import LANES
from trafo.models import EncoderDecoder
from trafo.models.encoder_decoder import DecoderLayer
from trafo.runtime.kernels import kernel_threads, launch_threads

_NONE: Ints = np.empty(0, np.int64)
_NO_SOURCE = np.empty((0, 0, 0, 0, 0), np.float32)


class PackedDecoder:
    """One token per row at a time, after the prompts."""

    def __init__(self, model: Any, weights: Weights, batch: BeamBatch) -> None:
        launch_threads()
        sentences, longest = len(batch.prompts), max(map(len, batch.prompts))
        self._weights, self._is_end = weights, batch.is_end
        self._num_rows = batch.beam * sentences
        self._padding = -1
        self._positions = batch.positions
        # The prompts first, without their last tokens, then `num_rows` blocks at every step.
        self._next_block = sentences * (longest - 1)
        num_blocks = self._next_block + self._num_rows * batch.most_tokens
        heads = weights.attention
        source, self._source_tables = (_NO_SOURCE, _NO_SOURCE), np.zeros((sentences, 0), np.int64)
        self._source_lengths = np.zeros(sentences, np.int64)
        if batch.sources is not None:
            self._padding = model.config.padding_id
            source, self._source_tables = _keys_of_sources(model, batch)
            self._source_lengths = np.array([len(each) for each in batch.sources])
        num_layers = max(len(heads.qkv.floats), len(heads.qkv.ints))
        shape = num_layers, num_blocks, heads.num_kv_heads
        self._cache = Cache(
            np.empty((*shape, heads.d_head, 1), np.float32),
            np.empty((*shape, 1, heads.d_head), np.float32),
            *source,
        )
        self._tables = np.zeros((sentences, longest - 1 + batch.most_tokens), np.int64)
        if longest > 1:
            self._read(batch.prompts, longest - 1)

    def _read(self, prompts: Any, longest: int) -> None:
        """Read the prompts up to their last tokens into the cache."""
        counts = self._positions
        self._tables[:, :longest] = np.arange(len(prompts) * longest).reshape(-1, longest)
        batch = StepBatch(
            np.array([i for prompt in prompts for i in prompt[:-1]], np.int64),
            np.concatenate([np.arange(count) for count in counts]),
            np.repeat(np.arange(len(prompts)), counts),
            self._tables,
            _NONE,
            self._source_tables,
            self._source_lengths,
        )
        with kernel_threads(torch.get_num_threads()):
            forward(self._weights, batch, self._cache)

    def best(self, last: Ints, totals: Doubles, number: int) -> Continuations:
        """In one compiled call."""
        rows = np.arange(last.size)
        self._tables[rows, self._positions] = self._next_block + rows
        self._next_block += self._num_rows
        batch = StepBatch(
            last.ravel(),
            self._positions,
            rows,
            self._tables,
            _NONE,
            self._source_tables,
            self._source_lengths,
        )
        found = empty_continuations(len(last), number)
        decode_and_choose(
            self._weights, batch, self._cache, totals, self._is_end, self._padding, found
        )
        self._positions = self._positions + 1
        return found

    def follow(self, rows: Ints) -> None:
        """No key moves: the rows get other tables."""
        self._tables = self._tables[rows]
        self._positions = self._positions[rows]
        self._source_tables = self._source_tables[rows]
        self._source_lengths = self._source_lengths[rows]


def _keys_of_sources(model: EncoderDecoder, batch: BeamBatch) -> tuple[Any, Ints]:
    """The keys and values of the sources in blocks of `LANES` tokens, and the blocks of each."""
    layers = [cast(DecoderLayer, layer) for layer in model.decoder]
    num_heads, d_head = model.config.num_heads, model.config.d_head
    states = model.encode(batch.source_ids(model)).states
    sentences, length = states.shape[:2]
    num_blocks = -(-length // LANES)
    states = functional.pad(states, (0, 0, 0, num_blocks * LANES - length))
    cut = len(layers), sentences * num_blocks, LANES, num_heads, d_head
    keys = torch.stack([layer.cross_attn.k_proj(states) for layer in layers]).view(cut)
    values = torch.stack([layer.cross_attn.v_proj(states) for layer in layers]).view(cut)
    whole_vectors = (0, -d_head % LANES)
    both = keys.permute(0, 1, 3, 4, 2), functional.pad(values.transpose(2, 3), whole_vectors)
    arrays = tuple(each.contiguous().numpy() for each in both)
    return arrays, np.arange(sentences * num_blocks).reshape(sentences, num_blocks)
