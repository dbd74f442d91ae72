"""Batched beam search; finds what `beam_reference.py` finds.

A batch has one row per hypothesis; the rows of a sentence are adjacent. The keys and values of the
source are computed once (`beam_decoder.py`). A sentence leaves the batch when it is done. Compiled
searches run side by side, one batch in each thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeGuard

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from trafo.errors import InputError
from trafo.generate.beam_config import BeamConfig, Hypothesis
from trafo.generate.beam_decoder import BeamBatch, BeamDecoder, CachedDecoder
from trafo.generate.engine.build import supports_kernels
from trafo.generate.packed.decoder import PackedDecoder
from trafo.generate.packed.pack import pack, pack_decoder
from trafo.generate.request import check_prompt
from trafo.models import CausalLM, EncoderDecoder, SequenceModel
from trafo.runtime.threads import map_in_order

BATCH_TOKENS = 1500
"""source tokens per batch, about"""


def beam_search_all(
    model: SequenceModel,
    sources: Sequence[Sequence[int]],
    end: int,
    config: BeamConfig,
    *,
    start: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    advance: Callable[[int], object] | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[list[Hypothesis]]:
    """The best translations of each source, best first, in the order of the sources.

    `end` also starts the target, unless there is a `start`.
    `advance` is called after each batch with its number of sentences, `check` before each step.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    make_decoder = decoders(model)

    def search(batch: Sequence[int]) -> list[list[Hypothesis]]:
        some = [sources[i] for i in batch]
        return BeamSearch.translating(model, some, end, config, start).run(make_decoder, check)

    num_threads = torch.get_num_threads() if supports_beams(model) else 1
    share = math.ceil(sum(map(len, sources)) / num_threads)
    batches = _batches(sources, min(batch_tokens, share))
    for batch, results in zip(batches, _side_by_side(search, batches, num_threads), strict=True):
        for index, hypotheses in zip(batch, results, strict=True):
            found[index] = hypotheses
        if advance is not None:
            advance(len(batch))
    return found


def _side_by_side(
    search: Callable[[Sequence[int]], list[list[Hypothesis]]],
    batches: Sequence[Sequence[int]],
    num_threads: int,
) -> Iterator[list[list[Hypothesis]]]:
    """The results of `search`, in order; each search computes with one thread only."""

    def search_alone(batch: Sequence[int]) -> list[list[Hypothesis]]:
        torch.set_num_threads(1)  # of this thread, and of those that are made from now on
        return search(batch)

    if min(num_threads, len(batches)) <= 1:
        yield from map(search, batches)
        return
    try:
        yield from map_in_order(search_alone, batches, num_threads)
    finally:
        torch.set_num_threads(num_threads)


def beam_search_steps(
    model: SequenceModel,
    source: Sequence[int],
    end: int,
    config: BeamConfig,
    check: Callable[[], None] = lambda: None,
) -> tuple[list[Hypothesis], list[list[Hypothesis]]]:
    """The best translations, best first, and the ended and continuing hypotheses of each step."""
    search = BeamSearch.translating(model, [source], end, config)
    search.steps = []
    (found,) = search.run(decoders(model), check)
    return found, search.steps


def beam_search_prompts(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    ends: Collection[int],
    config: BeamConfig,
    max_new_tokens: int,
) -> list[list[Hypothesis]]:
    """The best continuations of each prompt by a language model, best first."""
    for prompt in prompts:
        check_prompt(model, prompt)
        room = model.context_length - len(prompt)
        if room < 1:
            what = f"a prompt has {len(prompt):,} tokens, the model reads {model.context_length:,}"
            raise InputError(what, hint="beam search does not slide the context: shorten it")
    limits = [min(max_new_tokens, model.context_length - len(each)) for each in prompts]
    is_end = np.isin(np.arange(model.head_weight.shape[0]), list(ends))
    batch = BeamBatch(prompts, None, config.beam, max(limits), is_end)
    return BeamSearch(batch, limits, config).run(decoders(model))


def decoders(model: SequenceModel) -> Callable[[BeamBatch], BeamDecoder]:
    """Makes the decoder of a batch, a compiled one where possible; weights are packed once."""
    if supports_beams(model):
        weights = pack_decoder(model) if isinstance(model, EncoderDecoder) else pack(model)
        return lambda batch: PackedDecoder(model, weights, batch)
    return lambda batch: CachedDecoder(model, batch)


def supports_beams(model: SequenceModel) -> TypeGuard[EncoderDecoder | CausalLM]:
    """Whether the compiled decoder supports this model; then batches are searched side by side."""
    return isinstance(model, EncoderDecoder | CausalLM) and supports_kernels(model)


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

    def __init__(self, batch: BeamBatch, limits: Sequence[int], config: BeamConfig) -> None:
        self.batch, self.limits, self.config = batch, limits, config
        self.done: list[list[Hypothesis]] = [[] for _ in batch.prompts]
        self.steps: list[list[Hypothesis]] | None = None
        """if a list, it gets what each step ended and kept; for one sentence"""
        self.sentences = list(range(len(batch.prompts)))
        """those that are not done yet, in the order of the rows"""

    @classmethod
    def translating(
        cls,
        model: SequenceModel,
        sources: Sequence[Sequence[int]],
        end: int,
        config: BeamConfig,
        start: int | None = None,
    ) -> BeamSearch:
        """A search for translations, which begin with `start`, or else with the end token."""
        longest = model.config.context_length
        limits = [config.most_tokens(len(source), longest) for source in sources]
        prompts = [[end if start is None else start]] * len(sources)
        is_end = np.arange(model.head_weight.shape[0]) == end
        return cls(BeamBatch(prompts, sources, config.beam, max(limits), is_end), limits, config)

    @torch.inference_mode()
    def run(
        self,
        make_decoder: Callable[[BeamBatch], BeamDecoder],
        check: Callable[[], None] = lambda: None,
    ) -> list[list[Hypothesis]]:
        """Search until every sentence is done."""
        self.decoder = make_decoder(self.batch)
        # One hypothesis per sentence: the last token of its prompt.
        self.history = np.array([[[prompt[-1]]] for prompt in self.batch.prompts])
        self.logprobs = np.zeros((len(self.sentences), 1))
        for length in range(1, max(self.limits) + 1):
            check()
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
        last = np.ascontiguousarray(self.history[:, :, -1])
        logprobs, tokens, parents = self.decoder.best(last, self.logprobs, 2 * beam)
        ends = self.batch.is_end[tokens]
        self._finish(length, logprobs[:, :beam], ends[:, :beam], tokens, parents)
        # The first `beam` that do not end, in order: those that end are sorted to the back.
        order = ends.argsort(axis=1, kind="stable")[:, :beam]
        sentences = np.arange(len(order))[:, None]
        parents = parents[sentences, order]
        self.logprobs = logprobs[sentences, order]
        kept = self.history[sentences, parents]
        self.history = np.concatenate([kept, tokens[sentences, order][..., None]], axis=-1)
        self.decoder.follow((sentences * alive + parents).ravel())

    def _alive(self, place: int, length: int) -> list[Hypothesis]:
        """The hypotheses of a sentence that continue."""
        rows = zip(self.history[place, :, 1:].tolist(), self.logprobs[place].tolist(), strict=True)
        return [
            Hypothesis(tuple(ids), logprob, self.config.score(logprob, length))
            for ids, logprob in rows
            if logprob > -math.inf
        ]

    def _finish(
        self,
        length: int,
        logprobs: Float64[np.ndarray, "sentences beam"],
        ends: Bool[np.ndarray, "sentences beam"],
        tokens: Int64[np.ndarray, "sentences best"],
        parents: Int64[np.ndarray, "sentences best"],
    ) -> None:
        for place, rank in np.argwhere(ends).tolist():
            logprob = float(logprobs[place, rank])
            if logprob > -math.inf:
                ids = self.history[place, parents[place, rank], 1:].tolist()
                score = self.config.score(logprob, length)
                self.done[self.sentences[place]].append(
                    Hypothesis((*ids, int(tokens[place, rank])), logprob, score)
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
        rows = np.arange(self.logprobs.size).reshape(self.logprobs.shape)
        self.history, self.logprobs = self.history[stays], self.logprobs[stays]
        self.decoder.follow(rows[stays].ravel())

    def _rank(self, place: int, sentence: int, length: int) -> None:
        """Sort best first; unfinished hypotheses only if there are too few finished ones."""
        found, config = self.done[sentence], self.config
        if len(found) < config.n_best:
            found += self._alive(place, length)
        found.sort(key=lambda hypothesis: -hypothesis.score)
        del found[config.n_best :]
