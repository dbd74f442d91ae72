"""A model's weights in the order in which the compiled layers read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from torch import Tensor
from torch.nn import Module

from trafo.generate.engine.scheduler import Weights as Kind
from trafo.generate.packed.kernels import ACTIVATIONS, SWIGLU, Floats
from trafo.generate.packed.layers import (
    PLACEMENTS,
    Attention,
    FeedForward,
    Linear,
    Norm,
    Weights,
)
from trafo.generate.packed.panels import pack_linear
from trafo.models import CausalLM, TransformerBlock
from trafo.nn import FeedForward as PlainFeedForward
from trafo.nn import (
    LayerNorm,
    LearnedPositions,
    MultiHeadSelfAttention,
    RMSNorm,
    SinusoidalPositions,
    SwiGLU,
)
from trafo.nn import Linear as LinearLayer


def pack(model: CausalLM, kind: Kind) -> Weights:
    """All weights of a model; linear layers as float32 or int8."""
    blocks = [cast(TransformerBlock, block) for block in model.layers]
    return Weights(
        embeddings=_array(model.token_embeddings.weight),
        embedding_norm=_norm([model.ln_embeddings]),
        positions=_position_table(model.position_embeddings),
        attention=_attention([block.attn for block in blocks], kind),
        feed_forward=_feed_forward([block.ffn for block in blocks], kind),
        norms=(_norm([block.ln1 for block in blocks]), _norm([block.ln2 for block in blocks])),
        placement=PLACEMENTS.index(blocks[0].norm_placement),
        final_norm=_norm([model.ln_final]),
        head=pack_linear([[(model.head_weight, None)]], kind),
    )


def _attention(layers: Sequence[MultiHeadSelfAttention], kind: Kind) -> Attention:
    first = layers[0]
    rope = first.rope
    return Attention(
        qkv=_linear([[each.q_proj, each.k_proj, each.v_proj] for each in layers], kind),
        output=_linear([[each.output_proj] for each in layers], kind),
        q_norm=_norm([each.q_norm for each in layers]),
        k_norm=_norm([each.k_norm for each in layers]),
        cos=_nothing(2) if rope is None else _array(rope.cos),
        sin=_nothing(2) if rope is None else _array(rope.sin),
        num_heads=first.num_heads,
        window=first.attention.window or 0,
    )


def _feed_forward(layers: Sequence[Module], kind: Kind) -> FeedForward:
    first = layers[0]
    assert isinstance(first, SwiGLU | PlainFeedForward)
    names = ("w1", "w3") if isinstance(first, SwiGLU) else ("w1",)
    return FeedForward(
        up=_linear([[each.get_submodule(name) for name in names] for each in layers], kind),
        down=_linear([[each.get_submodule("w2")] for each in layers], kind),
        activation=ACTIVATIONS.index(SWIGLU if isinstance(first, SwiGLU) else first.activation),
        size=first.w1.weight.shape[0],
    )


def _linear(layers: Sequence[Sequence[Module]], kind: Kind) -> Linear:
    """In each layer the rows of several matrices, below each other."""
    parts = [[cast(LinearLayer, part) for part in layer] for layer in layers]
    return pack_linear([[(part.weight, part.bias) for part in layer] for layer in parts], kind)


def _norm(layers: Sequence[Module | None]) -> Norm:
    first = layers[0]
    if first is None:
        return Norm(_nothing(2), _nothing(2), 0.0)
    assert isinstance(first, RMSNorm | LayerNorm)
    has_shift = isinstance(first, LayerNorm)
    return Norm(
        np.stack([_parameter(each, "weight") for each in layers]),
        np.stack([_parameter(each, "bias") for each in layers]) if has_shift else _nothing(2),
        first.eps,
    )


def _position_table(positions: Module | None) -> Floats:
    if positions is None:
        return _nothing(2)
    if isinstance(positions, LearnedPositions):
        return _array(positions.weight)
    assert isinstance(positions, SinusoidalPositions)
    return _array(positions.table)


def _parameter(module: Module | None, name: str) -> Floats:
    assert module is not None
    return _array(module.get_parameter(name))


def _nothing(dimensions: int) -> Floats:
    return np.empty((0,) * dimensions, np.float32)


def _array(tensor: Tensor) -> Floats:
    return np.ascontiguousarray(tensor.detach().numpy())
