"""One step of the engine by the readable model, row by row, on any device and in any dtype.

The reference for the compiled step.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from trafo.generate.engine.blocks import BLOCK
from trafo.generate.engine.cache import PagedCache, StepBatch
from trafo.models import CausalLM
from trafo.nn import KVCache


class ReadableStep:
    """Reads the tokens of a batch; returns the logits that are wanted."""

    def __init__(self, model: CausalLM) -> None:
        self._model = model

    @torch.inference_mode()
    def __call__(self, batch: StepBatch, cache: PagedCache) -> Float[Tensor, "wanted vocab"]:
        """Logits after each wanted token."""
        device = self._model.head_weight.device
        states = []
        for row, table in enumerate(batch.tables):
            own = np.flatnonzero(batch.rows == row)
            start, stop = int(batch.positions[own[0]]), int(batch.positions[own[-1]]) + 1
            blocks = torch.from_numpy(table[: -(-stop // BLOCK)]).to(device)
            kv = self._gather(cache, blocks, start, stop)
            ids = torch.from_numpy(batch.ids[own]).to(device)
            states.append(self._model.hidden_states(ids[None], cache=kv)[0])
            _scatter(kv, cache, blocks, start, stop)
        chosen = torch.cat(states)[torch.from_numpy(batch.wanted).to(device)]
        return self._model.logits(chosen)

    def _gather(self, cache: PagedCache, blocks: Tensor, start: int, stop: int) -> KVCache:
        kv = self._model.make_cache(1, stop)
        keys = cache.keys[:, blocks].movedim(-1, -2)  # (layers, blocks, kv_heads, BLOCK, d_head)
        values = cache.values[:, blocks, ..., : keys.shape[-1]]
        for room, pages in ((kv.keys, keys), (kv.values, values)):
            room[:, 0, :, :start] = pages.transpose(1, 2).flatten(2, 3)[:, :, :start]
        kv.lengths = kv.lengths + start
        return kv


def _scatter(kv: KVCache, cache: PagedCache, blocks: Tensor, start: int, stop: int) -> None:
    slots = torch.arange(start, stop, device=blocks.device)
    pages, offsets = blocks[slots // BLOCK], slots % BLOCK
    cache.keys[:, pages, :, :, offsets] = kv.keys[:, 0, :, start:stop].permute(2, 0, 1, 3)
    values = kv.values[:, 0, :, start:stop].permute(2, 0, 1, 3)
    cache.values[:, pages, :, offsets, : values.shape[-1]] = values
