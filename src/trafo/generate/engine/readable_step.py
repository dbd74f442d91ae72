"""One step of the engine by the readable model, on any device and in any dtype.

The reference for the compiled step. Rows that read equally many tokens are computed together: their
keys and values are copied out of the blocks into the model's own KV cache, and the new ones back.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from trafo.generate.engine.cache import BLOCK, Ints, PagedCache, StepBatch
from trafo.models import CausalLM


class ReadableStep:
    """Reads the tokens of a batch; returns the logits that are wanted."""

    def __init__(self, model: CausalLM) -> None:
        self._model = model

    @torch.inference_mode()
    def __call__(self, batch: StepBatch, cache: PagedCache) -> Float[Tensor, "wanted vocab"]:
        """Logits after each wanted token."""
        weight = self._model.head_weight
        states = weight.new_empty(len(batch.ids), weight.shape[1])
        firsts, counts = np.unique(batch.rows, return_index=True, return_counts=True)[1:]
        for count in np.unique(counts):
            rows = np.flatnonzero(counts == count)
            tokens = firsts[rows, None] + np.arange(count)  # (rows, count)
            states[torch.from_numpy(tokens).to(weight.device)] = self._read(
                batch.ids[tokens], batch.positions[firsts[rows]], batch.tables[rows], cache
            )
        return self._model.logits(states[torch.from_numpy(batch.wanted).to(weight.device)])

    def _read(self, ids: Ints, starts: Ints, tables: Ints, cache: PagedCache) -> Tensor:
        """The hidden states of `ids` (rows, count); each row has read `starts` tokens before."""
        rows, count = ids.shape
        stop = int(starts.max()) + count
        device = cache.keys.device
        blocks = torch.from_numpy(tables[:, : -(-stop // BLOCK)]).to(device)
        first = torch.from_numpy(starts).to(device)
        kv = self._model.make_cache(rows, stop)
        keys = cache.keys[:, blocks].movedim(-1, -2)  # (layers, rows, blocks, heads, BLOCK, d_head)
        values = cache.values[:, blocks][..., : keys.shape[-1]]
        for room, pages in ((kv.keys, keys), (kv.values, values)):
            room[..., :stop, :] = pages.transpose(2, 3).flatten(3, 4)[..., :stop, :]
        kv.lengths = first
        states = self._model.hidden_states(torch.from_numpy(ids).to(device), cache=kv)
        slots = first[:, None] + torch.arange(count, device=device)
        row = torch.arange(rows, device=device)[:, None]
        pages, offsets = blocks[row, slots // BLOCK], slots % BLOCK  # (rows, count)
        cache.keys[:, pages, :, :, offsets] = kv.keys[:, row, :, slots]
        new = kv.values[:, row, :, slots]
        cache.values[:, pages, :, offsets, : new.shape[-1]] = new
        return states
