"""The loss on held-out ids."""

from __future__ import annotations

from trafo.evaluate import Evaluation, byte_lengths, evaluate_ids
from trafo.models import CausalLM
from trafo.train.build import Training
from trafo.train.distributed import whole_model
from trafo.train.plan import Plan

_LAST_TAKES = 10


def validate(training: Training, plan: Plan, *, is_last: bool) -> tuple[float, Evaluation | None]:
    """Measure the model on validation ids, the same ones each time and more of them at the end.

    Every rank learns the loss; only the first has the rest.
    """
    config = training.config
    model = whole_model(training.model, config.lm, training.ranks)
    if not isinstance(model, CausalLM):
        return training.ranks.agree(0.0), None
    num_ids = plan.evaluate_tokens
    if is_last and config.watch.evaluate_tokens is None:
        num_ids *= _LAST_TAKES
    evaluation = evaluate_ids(
        model,
        training.dataset.validation,
        context_length=config.seq,
        batch_size=max(1, config.batch_size // config.accumulate),
        byte_lengths=byte_lengths(training.dataset.tokenizer),
        max_tokens=min(num_ids, len(training.dataset.validation)),
    )
    return training.ranks.agree(evaluation.loss), evaluation
