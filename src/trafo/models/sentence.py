"""Sentence vectors: pool the hidden states of an encoder or a language model."""

from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.errors import ConfigError
from trafo.models.base import SequenceModel

Pooling = Literal["first", "mean", "max"]


def pool(
    states: Float[Tensor, "batch seq d_model"],
    real: Bool[Tensor, "batch seq"],
    how: Pooling = "mean",
) -> Float[Tensor, "batch d_model"]:
    """Pool the real positions by first, mean or max, to zeros for a row without any."""
    some = real.any(-1, keepdim=True)
    if how == "first":
        first = real.to(states.dtype).argmax(-1)
        pooled = states[range(len(states)), first]
    elif how == "mean":
        shares = real / real.sum(-1, keepdim=True).clamp(min=1)
        pooled = (states * shares[..., None].to(states.dtype)).sum(1)
    elif how == "max":
        pooled = states.masked_fill(~real[..., None], float("-inf")).amax(1)
    else:
        raise ConfigError(f"pooling is {how!r}", hint="choose one of first, mean, max")
    return pooled.where(some, 0.0)


def sentence_vectors(
    model: SequenceModel,
    ids: Int[Tensor, "batch seq"],
    real: Bool[Tensor, "batch seq"],
    how: Pooling = "mean",
) -> Float[Tensor, "batch d_model"]:
    """Compute a vector for each right-padded row, where `real` is False for padding.

    In a language model the first position attends only to itself: prefer mean or max there.
    """
    states = model.encode(ids).states if model.has_source else model.hidden_states(ids, None)
    return pool(states, real, how)
