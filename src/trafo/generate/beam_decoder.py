"""What goes between beam search and a decoder, and the decoder that is the model itself.

The compiled decoder is in `packed/decoder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from trafo.data.pair_batches import padded
from trafo.models.recurrent import RecurrentCache
from trafo.nn import KVCache
from trafo.nn.precision import at_least_float32
from trafo.runtime.kernels import kernel


@dataclass(frozen=True)
class BeamBatch:
    """Prompts that are continued together, each with its source if the model has one."""

    prompts: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]] | None
    beam: int
    most_tokens: int
    """maximum number of new tokens"""
    is_end: Bool[np.ndarray, " vocab"]

    @property
    def positions(self) -> Int64[np.ndarray, " sentences"]:
        """Where the last token of each prompt stands, which the first step reads."""
        return np.array([len(prompt) - 1 for prompt in self.prompts])

    def source_ids(self, model: Any) -> Int[Tensor, "sentences source"]:
        """The sources, padded, on the model's device."""
        ids = [np.asarray(source, np.int32) for source in self.sources or ()]
        return padded(ids, model.config.padding_id).to(model.head_weight.device)


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


class CachedDecoder:
    """Any model on any device, with its own cache."""

    def __init__(self, model: Any, batch: BeamBatch) -> None:
        self._model = model
        self._padding = -1 if batch.sources is None else model.config.padding_id
        self._memory = None if batch.sources is None else model.encode(batch.source_ids(model))
        longest = max(map(len, batch.prompts))
        self._cache = model.make_cache(len(batch.prompts), longest - 1 + batch.most_tokens)
        self._sentences = torch.arange(len(batch.prompts))
        if longest > 1:
            ids = [np.asarray(prompt[:-1], np.int32) for prompt in batch.prompts]
            lengths = torch.from_numpy(batch.positions).to(model.head_weight.device)
            self._logits(padded(ids, 0), lengths)

    def best(
        self,
        last: Int64[np.ndarray, "sentences alive"],
        totals: Float64[np.ndarray, "sentences alive"],
        number: int,
    ) -> Continuations:
        """By the model itself."""
        logits = self._logits(torch.from_numpy(last.reshape(-1, 1)))[:, -1]
        added = at_least_float32(logits).log_softmax(-1).cpu()
        found = empty_continuations(len(last), number)
        best_continuations(added.numpy(), totals, self._padding, found)
        return found

    def _logits(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        model, ids = self._model, ids.long().to(self._model.head_weight.device)
        memory = () if self._memory is None else (self._memory,)
        states = model.hidden_states(ids, *memory, cache=self._cache, lengths=lengths)
        logits: Tensor = model.logits(states)
        return logits

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


def reorder_beams(cache: Any, rows: Int[Tensor, " rows"]) -> None:
    """Row i becomes a copy of row `rows[i]` of the same sentence, which has the same source."""
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
    if not len(moved):
        return
    if isinstance(cache, RecurrentCache):
        assert cache.state is not None
        cache.state = cache.state[rows]
        return
    target: KVCache = getattr(cache, "target", cache)
    used = int(target.lengths.max())
    for stored in (target.keys, target.values):
        stored[:, moved, :, :used] = stored[:, rows[moved], :, :used]


@kernel
def best_continuations(
    added: NDArray[np.float32], totals: NDArray[np.float64], padding: int, out: Continuations
) -> None:
    """The most probable continuations of each sentence, best first; the earlier one if equal.

    added: (sentences * alive, vocab) log-probabilities of the next token, totals: (sentences,
    alive) those of the hypotheses. A place for which nothing is left keeps a probability of zero.
    A padding below 0 is none.
    """
    best, tokens, parents = out
    alive, number = totals.shape[1], best.shape[1]
    best[:], tokens[:], parents[:] = -np.inf, max(padding, 0), 0
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
