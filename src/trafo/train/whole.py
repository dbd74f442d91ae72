"""The model as one piece, to be measured or to write: under FSDP each rank has only a part."""

from __future__ import annotations

from trafo.checkpoint.snapshot import restore_weights, take_weights
from trafo.models import CausalLM, build_model
from trafo.optim.sharded import is_sharded
from trafo.train.build import Training


def whole_model(training: Training) -> CausalLM | None:
    """The model itself, or a copy put together from its parts. All ranks ask, the first gets it."""
    if not is_sharded(next(training.model.parameters())):
        return training.model if training.ranks.is_first else None
    weights = take_weights(training.model)
    if not training.ranks.is_first:
        return None
    copy = build_model(training.config.lm)
    assert isinstance(copy, CausalLM)
    restore_weights(weights, copy)
    return copy
