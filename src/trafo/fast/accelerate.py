"""A finished model -> the same model, faster.

Each layer that has a faster version becomes one: its class is replaced, its weights, names and
settings stay. The faster classes are subclasses that override `forward` and nothing else, so a
checkpoint does not tell the two apart. A layer without a faster version stays as it is.
"""

from typing import TypeVar

from torch.nn import Module

from trafo.fast.attention import FusedAttention
from trafo.fast.layers import (
    FastFeedForward,
    FastLayerNorm,
    FastLinear,
    FastRMSNorm,
    FastRotaryPositionalEmbedding,
    FastSwiGLU,
)
from trafo.nn import (
    FeedForward,
    HeadsAttention,
    LayerNorm,
    Linear,
    RMSNorm,
    RotaryPositionalEmbedding,
    SwiGLU,
)

FAST: dict[type[Module], type[Module]] = {
    FeedForward: FastFeedForward,
    HeadsAttention: FusedAttention,
    LayerNorm: FastLayerNorm,
    Linear: FastLinear,
    RMSNorm: FastRMSNorm,
    RotaryPositionalEmbedding: FastRotaryPositionalEmbedding,
    SwiGLU: FastSwiGLU,
}

_MARK = "_is_accelerated"

AnyModule = TypeVar("AnyModule", bound=Module)


def accelerate(model: AnyModule) -> AnyModule:
    """Make the layers of `model` fast, in place, with the same results up to rounding."""
    for module in model.modules():
        module.__class__ = FAST.get(type(module), type(module))
    setattr(model, _MARK, True)
    return model


def is_accelerated(model: Module) -> bool:
    """Whether `accelerate` was applied to this model."""
    return bool(getattr(model, _MARK, False))
