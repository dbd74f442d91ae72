"""Beam search for one sentence, simple and slow: the reference for `beam.py`.

Each step extends every hypothesis by every token and ranks all by log-probability. Those among the
first `beam` that end are done; the first `beam` of the others continue. The search stops
when `beam` hypotheses are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trafo.generate.beam_config import BeamConfig, Hypothesis
from trafo.models.translator import Translator


@torch.inference_mode()
def beam_search(
    model: Translator,
    source: Sequence[int],
    end: int,
    config: BeamConfig,
    steps: list[list[Hypothesis]] | None = None,
) -> list[Hypothesis]:
    """The best translations of a source, best first. `end` also starts the target.

    `steps` receives the finished and the continuing hypotheses of each step.
    """
    padding = model.config.padding_id
    memory = model.encode(torch.tensor([list(source)]))
    alive, done = [Hypothesis((), 0.0, 0.0)], list[Hypothesis]()
    for _ in range(config.most_tokens(len(source), getattr(model.config, "context_length", None))):
        grown = []
        for ids, logprob, _ in alive:
            logits = model.decode(torch.tensor([[end, *ids]]), memory)[0, -1]  # type: ignore[arg-type]
            for token, added in enumerate(logits.log_softmax(-1).tolist()):
                if token != padding:
                    total = logprob + added
                    score = config.score(total, len(ids) + 1)
                    grown.append(Hypothesis((*ids, token), total, score))
        grown.sort(key=lambda hypothesis: -hypothesis.logprob)
        ended = [hypothesis for hypothesis in grown[: config.beam] if hypothesis.ids[-1] == end]
        alive = [hypothesis for hypothesis in grown if hypothesis.ids[-1] != end][: config.beam]
        done += ended
        if steps is not None:
            steps.append(ended + alive)
        if len(done) >= config.beam:
            break
    found = done if len(done) >= config.n_best else done + alive
    return sorted(found, key=lambda hypothesis: -hypothesis.score)[: config.n_best]
