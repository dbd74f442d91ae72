"""The loss on held-out ids."""

from __future__ import annotations

from trafo.evaluate import Evaluation, byte_lengths, evaluate_ids
from trafo.train.build import Training
from trafo.train.plan import Plan

_LAST_TAKES = 10


def validate(training: Training, plan: Plan, *, is_last: bool) -> Evaluation:
    """Measure the model on validation ids, the same ones each time and more of them at the end."""
    config = training.config
    num_ids = plan.evaluate_tokens
    if is_last and config.watch.evaluate_tokens is None:
        num_ids *= _LAST_TAKES
    return evaluate_ids(
        training.model,
        training.dataset.validation,
        context_length=config.seq,
        batch_size=max(1, config.batch_size // config.accumulate),
        byte_lengths=byte_lengths(training.dataset.tokenizer),
        max_tokens=min(num_ids, len(training.dataset.validation)),
    )
