"""Batched beam search; finds what `beam_reference.py` finds.

A batch has one row per hypothesis; the rows of a sentence are adjacent. The keys and values of the
source are computed once (`beam_decoder.py`). A sentence leaves the batch when it is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trafo.generate.beam_config import BeamConfig, Hypothesis
from trafo.generate.beam_decoder import make_decoder
from trafo.generate.beam_kernels import best_continuations
from trafo.models.translator import Translator
from trafo.nn.precision import at_least_float32

BATCH_TOKENS = 1500
"""source tokens per batch, about"""


def beam_search_all(
    model: Translator,
    sources: Sequence[Sequence[int]],
    end: int,
    config: BeamConfig,
    *,
    start: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    advance: Callable[[int], object] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each source, best first, in the order of the sources.

    `end` also starts the target, unless there is a `start`.
    `advance` is called after each batch with its number of sentences.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for batch in _batches(sources, batch_tokens):
        results = BeamSearch(model, [sources[i] for i in batch], end, config, start).run()
        for index, hypotheses in zip(batch, results, strict=True):
            found[index] = hypotheses
        if advance is not None:
            advance(len(batch))
    return found


def beam_search_steps(
    model: Translator, source: Sequence[int], end: int, config: BeamConfig
) -> tuple[list[Hypothesis], list[list[Hypothesis]]]:
    """The best translations, best first, and the ended and continuing hypotheses of each step."""
    search = BeamSearch(model, [source], end, config)
    search.steps = []
    (found,) = search.run()
    return found, search.steps


def _batches(sources: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Batches of similar length, longest first: what does not fit in memory fails at once."""
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(sources)), key=lambda index: -len(sources[index])):
        if room < len(sources[index]):
            batches.append([])
            room = max(tokens, len(sources[index]))
        batches[-1].append(index)
        room -= len(sources[index])
    return batches


class BeamSearch:
    """The search over one batch. Sentence i has the rows i * beam to (i + 1) * beam."""

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Sequence[int]],
        end: int,
        config: BeamConfig,
        start: int | None = None,
    ) -> None:
        self.model, self.config, self.end = model, config, end
        self.start = end if start is None else start
        self.sources = sources
        longest = getattr(model.config, "context_length", None)
        self.limits = [config.most_tokens(len(source), longest) for source in sources]
        self.done: list[list[Hypothesis]] = [[] for _ in sources]
        self.steps: list[list[Hypothesis]] | None = None
        """if a list, it gets what each step ended and kept; for one sentence"""
        self.sentences = list(range(len(sources)))
        """those that are not done yet, in the order of the rows"""

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        """Search until every sentence is done."""
        self.decoder = make_decoder(self.model, self.sources, max(self.limits))
        # One hypothesis per sentence: the start token alone.
        self.history = torch.full((len(self.sources), 1, 1), self.start)
        self.logprobs = torch.zeros(len(self.sources), 1, dtype=torch.float64)
        for length in range(1, max(self.limits) + 1):
            num_done = len(self.done[0])
            self._grow(length)
            if self.steps is not None:
                self.steps.append(self.done[0][num_done:] + self._alive(0, length))
            self._drop_finished(length)
            if not self.sentences:
                break
        return self.done

    def _grow(self, length: int) -> None:
        """Extend every hypothesis by one token; keep the best continuations."""
        beam, alive = self.config.beam, self.history.shape[1]
        logprobs, tokens, parents = self._best(2 * beam)
        ends = tokens == self.end
        self._finish(length, logprobs[:, :beam], ends[:, :beam], parents)
        # The first `beam` that do not end, in order: those that end are sorted to the back.
        order = ends.to(torch.int8).sort(dim=1, stable=True).indices[:, :beam]
        parents = parents.gather(1, order)
        self.logprobs = logprobs.gather(1, order)
        kept = self.history.gather(1, parents[..., None].expand(-1, -1, length))
        self.history = torch.cat([kept, tokens.gather(1, order)[..., None]], dim=-1)
        first = torch.arange(len(parents))[:, None] * alive
        self.decoder.follow((first + parents).flatten())

    def _alive(self, place: int, length: int) -> list[Hypothesis]:
        """The hypotheses of a sentence that continue."""
        rows = zip(self.history[place, :, 1:].tolist(), self.logprobs[place].tolist(), strict=True)
        return [
            Hypothesis(tuple(ids), logprob, self.config.score(logprob, length))
            for ids, logprob in rows
            if logprob > -math.inf
        ]

    def _best(
        self, number: int
    ) -> tuple[
        Float[Tensor, "sentences best"],
        Int[Tensor, "sentences best"],
        Int[Tensor, "sentences best"],
    ]:
        """Log-probability, token and parent of the best continuations of each sentence."""
        last = self.history[:, :, -1].flatten()
        logits = self.decoder.logits(last.to(self.model.head_weight.device))
        added = at_least_float32(logits).log_softmax(-1).cpu()
        shape = len(self.history), number
        best = torch.empty(shape, dtype=torch.float64)
        tokens, parents = torch.empty(2, *shape, dtype=torch.int64)
        arrays = (each.numpy() for each in (best, tokens, parents))
        best_continuations(
            added.numpy(), self.logprobs.numpy(), self.model.config.padding_id, *arrays
        )
        return best, tokens, parents

    def _finish(
        self,
        length: int,
        logprobs: Float[Tensor, "sentences beam"],
        ends: Tensor,
        parents: Int[Tensor, "sentences best"],
    ) -> None:
        for place, rank in ends.nonzero().tolist():
            logprob = float(logprobs[place, rank])
            if logprob > -math.inf:
                ids = self.history[place, parents[place, rank], 1:].tolist()
                score = self.config.score(logprob, length)
                self.done[self.sentences[place]].append(
                    Hypothesis((*ids, self.end), logprob, score)
                )

    def _drop_finished(self, length: int) -> None:
        """Remove the sentences that are done."""
        beam = self.config.beam
        stays = []
        for place, sentence in enumerate(self.sentences):
            if len(self.done[sentence]) >= beam or length >= self.limits[sentence]:
                self._rank(place, sentence, length)
            else:
                stays.append(place)
        if len(stays) == len(self.sentences):
            return
        self.sentences = [self.sentences[place] for place in stays]
        if not stays:
            return
        places = torch.tensor(stays)
        alive = self.history.shape[1]
        rows = torch.arange(len(self.history) * alive).view(-1, alive)
        self.history, self.logprobs = self.history[places], self.logprobs[places]
        self.decoder.follow(rows[places].flatten())

    def _rank(self, place: int, sentence: int, length: int) -> None:
        """Sort best first; unfinished hypotheses only if there are too few finished ones."""
        found, config = self.done[sentence], self.config
        if len(found) < config.n_best:
            found += self._alive(place, length)
        found.sort(key=lambda hypothesis: -hypothesis.score)
        del found[config.n_best :]
