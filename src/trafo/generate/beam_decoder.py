"""What goes between beam search and a decoder, and the decoder that is the model itself.

The compiled decoder is in `packed/decoder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from trafo.data.pair_batches import padded
from trafo.models.encoder_decoder import DecoderCache
from trafo.models.recurrent import RecurrentCache
from trafo.models.translator import Translator
from trafo.nn.precision import at_least_float32
from trafo.runtime.kernels import kernel


class SourceBatch(NamedTuple):
    """Sources that are translated together, and how."""

    ids: Int[Tensor, "sentences source"]
    lengths: Int64[np.ndarray, " sentences"]
    beam: int
    most_tokens: int
    """of a translation"""
    end: int


class Continuations(NamedTuple):
    """The best continuations of each sentence's hypotheses, best first."""

    logprobs: Float64[np.ndarray, "sentences best"]
    """-inf where nothing is left"""
    tokens: Int64[np.ndarray, "sentences best"]
    parents: Int64[np.ndarray, "sentences best"]
    """which hypothesis of the sentence is continued"""


def empty_continuations(sentences: int, number: int) -> Continuations:
    """Arrays for a kernel to fill."""
    tokens, parents = np.empty((2, sentences, number), np.int64)
    return Continuations(np.empty((sentences, number)), tokens, parents)


class BeamDecoder(Protocol):
    """A decoder with one row per hypothesis; it begins with one row per sentence."""

    def best(
        self,
        last: Int64[np.ndarray, "sentences alive"],
        totals: Float64[np.ndarray, "sentences alive"],
        number: int,
    ) -> Continuations:
        """Best continuations of hypotheses with these last tokens and log-probabilities.

        The hypotheses of a sentence come best first. `number` is twice the beam; only what beam
        search needs is complete: the first `beam` ones, and the first `beam` that do not end.
        """

    def follow(self, rows: Int64[np.ndarray, " new_rows"]) -> None:
        """Row i continues the hypothesis of row `rows[i]`."""


def make_batch(
    model: Translator, sources: Sequence[Sequence[int]], beam: int, most_tokens: int, end: int
) -> SourceBatch:
    """Pad the sources, on the model's device."""
    ids = [np.asarray(source, np.int32) for source in sources]
    batch = padded(ids, model.config.padding_id).to(model.head_weight.device)
    return SourceBatch(batch, np.array([len(each) for each in ids]), beam, most_tokens, end)


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
        best_continuations(added.numpy(), totals, model.config.padding_id, found)
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


@kernel
def best_continuations(
    added: NDArray[np.float32], totals: NDArray[np.float64], padding: int, out: Continuations
) -> None:
    """The most probable continuations of each sentence, best first; the earlier one if equal.

    added: (sentences * alive, vocab) log-probabilities of the next token, totals: (sentences,
    alive) those of the hypotheses. A place for which nothing is left keeps a probability of zero.
    """
    best, tokens, parents = out
    alive, number = totals.shape[1], best.shape[1]
    best[:], tokens[:], parents[:] = -np.inf, padding, 0
    for sentence in range(totals.shape[0]):
        found = best[sentence]
        for parent in range(alive):
            total, row = totals[sentence, parent], added[sentence * alive + parent]
            least = found[number - 1] - total  # compared with one number in the long loop
            for token in range(row.shape[0]):
                if row[token] > least and token != padding:
                    place = number - 1
                    value = total + row[token]
                    if not value > found[place]:
                        continue
                    while place > 0 and found[place - 1] < value:
                        found[place] = found[place - 1]
                        tokens[sentence, place] = tokens[sentence, place - 1]
                        parents[sentence, place] = parents[sentence, place - 1]
                        place -= 1
                    found[place] = value
                    tokens[sentence, place], parents[sentence, place] = token, parent
                    least = found[number - 1] - total
