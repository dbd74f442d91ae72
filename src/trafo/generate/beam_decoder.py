"""Decoders for beam search: the model's own, or where it can be a compiled one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from trafo.generate.beam_batch import (
    BeamDecoder,
    Continuations,
    SourceBatch,
    empty_continuations,
)
from trafo.generate.beam_kernels import best_continuations
from trafo.generate.packed_beam.decoder import PackedDecoder, can_pack
from trafo.generate.packed_beam.weights import pack_decoder
from trafo.models import EncoderDecoder
from trafo.models.encoder_decoder import DecoderCache
from trafo.models.recurrent import RecurrentCache
from trafo.models.translator import Translator
from trafo.nn.precision import at_least_float32


def decoders(model: Translator) -> Callable[[SourceBatch], BeamDecoder]:
    """Makes the decoder for a batch of sources; the weights are packed once for all batches."""
    if isinstance(model, EncoderDecoder) and can_pack(model):
        transformer, weights = model, pack_decoder(model)
        pool = ThreadPoolExecutor(thread_name_prefix="beam")
        return lambda batch: PackedDecoder(transformer, weights, batch, pool)
    return lambda batch: CachedDecoder(model, batch)


class CachedDecoder:
    """Any translation model on any device, with its own cache."""

    def __init__(self, model: Translator, batch: SourceBatch) -> None:
        self._model = model
        self._memory = model.encode(batch.ids)
        self._cache = model.make_cache(len(batch.ids), batch.most_tokens)
        self._sentences = torch.arange(len(batch.ids))

    def best(
        self,
        last: Int64[np.ndarray, "sentences alive"],
        totals: Float64[np.ndarray, "sentences alive"],
        number: int,
    ) -> Continuations:
        """By the model's `decode`."""
        model = self._model
        ids = torch.from_numpy(last.reshape(-1, 1)).to(model.head_weight.device)
        logits = model.decode(ids, self._memory, cache=self._cache)[:, -1]  # type: ignore[arg-type]
        added = at_least_float32(logits).log_softmax(-1).cpu()
        found = empty_continuations(len(last), number)
        best_continuations(added.numpy(), totals, model.config.padding_id, *found)
        return found

    def follow(self, rows: Int64[np.ndarray, " new_rows"]) -> None:
        """Reorder the cache; only the target's part if the sentences stay where they are."""
        parents = torch.from_numpy(rows)
        sentences = self._sentences[parents]
        device = self._model.head_weight.device
        if torch.equal(sentences, self._sentences):
            reorder_beams(self._cache, parents.to(device))
        else:
            self._cache.reorder(parents.to(device))
        self._sentences = sentences


def reorder_beams(cache: DecoderCache | RecurrentCache, rows: Int[Tensor, " rows"]) -> None:
    """Row i becomes a copy of row `rows[i]` of the same sentence, which has the same source."""
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
    if not len(moved):
        return
    if isinstance(cache, RecurrentCache):
        assert cache.state is not None
        cache.state = cache.state[rows]
        return
    used = int(cache.target.lengths.max())
    for stored in (cache.target.keys, cache.target.values):
        stored[:, moved, :, :used] = stored[:, rows[moved], :, :used]
