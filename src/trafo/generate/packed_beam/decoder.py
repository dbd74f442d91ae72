"""The decoder of an `EncoderDecoder` for beam search: what `CachedDecoder` computes, fast.

No key is copied, and the beams of a sentence share the keys of its source.
"""

from __future__ import annotations

import numpy as np
import torch

from trafo.generate.beam_decoder import Continuations, SourceBatch, empty_continuations
from trafo.generate.packed.kernels import Ints
from trafo.generate.packed_beam.choose import decode_and_choose
from trafo.generate.packed_beam.weights import Beams, Decoder, Doubles, make_memory
from trafo.models import EncoderDecoder, is_builtin


def can_pack(model: EncoderDecoder) -> bool:
    """Whether the kernels support this model's numbers and device."""
    weight = model.head_weight
    is_supported = weight.device.type == "cpu" and weight.dtype == torch.float32
    return is_supported and is_builtin(model)


class PackedDecoder:
    """One token per row at a time."""

    def __init__(self, model: EncoderDecoder, weights: Decoder, batch: SourceBatch) -> None:
        self._decoder, self._end = weights, batch.end
        states = model.encode(batch.ids).states
        self._memory = make_memory(
            model, states, batch.lengths, beam=batch.beam, steps=batch.most_tokens
        )
        self._sources = np.arange(len(states))
        self._ancestors = np.zeros((len(states), batch.most_tokens), np.int64)
        self._step = 0

    def best(self, last: Ints, totals: Doubles, number: int) -> Continuations:
        """In one compiled call."""
        self._ancestors[:, self._step] = np.arange(last.size)
        self._step += 1
        ancestors = self._ancestors[:, : self._step]
        beams = Beams(last.ravel(), totals, self._sources, ancestors)
        found = empty_continuations(len(last), number)
        decode_and_choose(self._decoder, self._memory, beams, self._end, found)
        return found

    def follow(self, rows: Ints) -> None:
        """No key moves: the rows get other ancestors."""
        self._ancestors = self._ancestors[rows]
        self._sources = self._sources[rows]
