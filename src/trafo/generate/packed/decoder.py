"""The decoder of an `EncoderDecoder` for beam search: what `CachedDecoder` computes, fast.

No key is copied, and the beams of a sentence share the keys of its source.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from trafo.generate.beam_decoder import Continuations, SourceBatch, empty_continuations
from trafo.generate.engine.cache import StepBatch
from trafo.generate.packed.choose import Doubles, decode_and_choose
from trafo.generate.packed.kernels import Ints
from trafo.generate.packed.layers import Cache, Weights
from trafo.generate.packed.tiles import LANES
from trafo.models import EncoderDecoder
from trafo.models.encoder_decoder import DecoderLayer

_NONE: Ints = np.empty(0, np.int64)


class PackedDecoder:
    """One token per row at a time."""

    def __init__(self, model: EncoderDecoder, weights: Weights, batch: SourceBatch) -> None:
        self._weights, self._end, self._padding = weights, batch.end, model.config.padding_id
        states = model.encode(batch.ids).states
        self._num_rows = batch.beam * len(states)
        self._cache, tables = _make_cache(model, states, self._num_rows * batch.most_tokens)
        self._source_tables, self._source_lengths = tables, batch.lengths
        self._tables = np.zeros((len(states), batch.most_tokens), np.int64)
        self._step = 0

    def best(self, last: Ints, totals: Doubles, number: int) -> Continuations:
        """In one compiled call."""
        rows = np.arange(last.size)
        self._tables[:, self._step] = self._step * self._num_rows + rows
        batch = StepBatch(
            last.ravel(),
            np.full(last.size, self._step),
            rows,
            self._tables,
            _NONE,
            self._source_tables,
            self._source_lengths,
        )
        self._step += 1
        found = empty_continuations(len(last), number)
        decode_and_choose(
            self._weights, batch, self._cache, totals, self._end, self._padding, found
        )
        return found

    def follow(self, rows: Ints) -> None:
        """No key moves: the rows get other tables."""
        self._tables = self._tables[rows]
        self._source_tables = self._source_tables[rows]
        self._source_lengths = self._source_lengths[rows]


def _make_cache(model: EncoderDecoder, states: Tensor, num_tokens: int) -> tuple[Cache, Ints]:
    """The keys and values of the sources, and room for targets; the blocks of each source."""
    layers = [cast(DecoderLayer, layer) for layer in model.decoder]
    num_heads, d_head = model.config.num_heads, model.config.d_head
    sentences, length = states.shape[:2]
    num_blocks = -(-length // LANES)
    states = torch.nn.functional.pad(states, (0, 0, 0, num_blocks * LANES - length))
    cut = len(layers), sentences * num_blocks, LANES, num_heads, d_head
    keys = torch.stack([layer.cross_attn.k_proj(states) for layer in layers]).view(cut)
    values = torch.stack([layer.cross_attn.v_proj(states) for layer in layers]).view(cut)
    width = -(-d_head // LANES) * LANES
    values = torch.nn.functional.pad(values.transpose(2, 3), (0, width - d_head))
    cache = Cache(
        np.empty((len(layers), num_tokens, num_heads, d_head, 1), np.float32),
        np.empty((len(layers), num_tokens, num_heads, 1, d_head), np.float32),
        keys.permute(0, 1, 3, 4, 2).contiguous().numpy(),
        values.contiguous().numpy(),
    )
    return cache, np.arange(sentences * num_blocks).reshape(sentences, num_blocks)
