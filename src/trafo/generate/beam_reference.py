"""Beam search for one sentence, simple and slow: the reference for `beam.py`.

Each step extends every hypothesis by every token and ranks all by log-probability. Those among the
first `beam` that end are done; the first `beam` of the others continue. The search stops
when `beam` hypotheses are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trafo.generate.beam_config import BeamConfig, Hypothesis
from trafo.models import CausalLM, SequenceModel


@torch.inference_mode()
def beam_search(
    model: SequenceModel,
    source: Sequence[int],
    end: int,
    config: BeamConfig,
    steps: list[list[Hypothesis]] | None = None,
) -> list[Hypothesis]:
    """The best translations of a source, best first. `end` also starts the target.

    `steps` receives the finished and the continuing hypotheses of each step.
    """
    memory = model.encode(torch.tensor([list(source)]))
    most = config.most_tokens(len(source), model.config.context_length)

    def next_logprobs(ids: tuple[int, ...]) -> Tensor:
        logits = model.decode(torch.tensor([[end, *ids]]), memory)[0, -1]
        logprobs = logits.log_softmax(-1)
        logprobs[model.config.padding_id] = -torch.inf  # never chosen, whatever its probability
        return logprobs

    return _search(next_logprobs, end, most, config, [] if steps is None else steps)


@torch.inference_mode()
def beam_search_continuations(
    model: CausalLM, prompt: Sequence[int], end: int, config: BeamConfig, max_new_tokens: int
) -> list[Hypothesis]:
    """The best continuations of a prompt by a language model, best first."""

    def next_logprobs(ids: tuple[int, ...]) -> Tensor:
        logits: Tensor = model(torch.tensor([[*prompt, *ids]]))[0, -1]
        return logits.log_softmax(-1)

    return _search(next_logprobs, end, max_new_tokens, config, [])


def _search(
    next_logprobs: Callable[[tuple[int, ...]], Tensor],
    end: int,
    max_tokens: int,
    config: BeamConfig,
    steps: list[list[Hypothesis]],
) -> list[Hypothesis]:
    alive, done = [Hypothesis((), 0.0, 0.0)], list[Hypothesis]()
    for _ in range(max_tokens):
        grown = []
        for ids, logprob, _ in alive:
            for token, added in enumerate(next_logprobs(ids).tolist()):
                if added > -math.inf:
                    total = logprob + added
                    score = config.score(total, len(ids) + 1)
                    grown.append(Hypothesis((*ids, token), total, score))
        grown.sort(key=lambda hypothesis: -hypothesis.logprob)
        ended = [hypothesis for hypothesis in grown[: config.beam] if hypothesis.ids[-1] == end]
        alive = [hypothesis for hypothesis in grown if hypothesis.ids[-1] != end][: config.beam]
        done += ended
        steps.append(ended + alive)
        if len(done) >= config.beam:
            break
    found = done if len(done) >= config.n_best else done + alive
    return sorted(found, key=lambda hypothesis: -hypothesis.score)[: config.n_best]
