"""Beam search of one sentence that also tells what it kept at each step, to be shown as a tree."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trafo.generate.beam import _Search
from trafo.generate.beam_config import BeamConfig, Hypothesis
from trafo.models.translator import Translator


def beam_search_steps(
    model: Translator, source: Sequence[int], end: int, config: BeamConfig
) -> tuple[list[Hypothesis], list[list[Hypothesis]]]:
    """The best translations, best first, and the ended and continuing hypotheses of each step.

    The same as `beam_reference.beam_search`, fast.
    """
    search = _RecordedSearch(model, [source], end, config)
    (found,) = search.run()
    return found, search.steps


class _RecordedSearch(_Search):
    """The search over a batch of one sentence."""

    def __init__(
        self, model: Translator, sources: Sequence[Sequence[int]], end: int, config: BeamConfig
    ) -> None:
        super().__init__(model, sources, end, config)
        self.steps: list[list[Hypothesis]] = []

    def _grow(self, length: int) -> None:
        num_done = len(self.done[0])
        super()._grow(length)
        alive = [
            Hypothesis(tuple(ids), logprob, self.config.score(logprob, length))
            for ids, logprob in zip(
                self.history[0, :, 1:].tolist(), self.logprobs[0].tolist(), strict=True
            )
            if logprob > -math.inf
        ]
        self.steps.append(self.done[0][num_done:] + alive)
