"""A model's weights in the order in which the compiled layers read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch.nn import Module

from trafo.generate.config import WeightDtype
from trafo.generate.packed.kernels import ACTIVATIONS, SWIGLU, Floats
from trafo.generate.packed.layers import PLACEMENTS, Attention, CrossAttention, FeedForward, Weights
from trafo.generate.packed.panels import (
    NO_LINEAR,
    NO_NORM,
    NOTHING,
    array,
    pack_layers,
    pack_linear,
    pack_norm,
)
from trafo.models import CausalLM, EncoderDecoder, TransformerBlock
from trafo.models.encoder_decoder import DecoderLayer
from trafo.nn import FeedForward as PlainFeedForward
from trafo.nn import LearnedPositions, MultiHeadSelfAttention, SinusoidalPositions, SwiGLU


def pack(model: CausalLM, dtype: WeightDtype = "float32") -> Weights:
    """All weights of a model; linear layers as float32 or int8."""
    blocks = [cast(TransformerBlock, block) for block in model.layers]
    return Weights(
        embeddings=array(model.token_embeddings.weight),
        embedding_norm=pack_norm([model.ln_embeddings]),
        positions=_position_table(model.position_embeddings),
        attention=_attention([block.attn for block in blocks], dtype),
        cross=CrossAttention(NO_LINEAR, NO_LINEAR),
        feed_forward=_feed_forward([block.ffn for block in blocks], dtype),
        norms=(
            pack_norm([block.ln1 for block in blocks]),
            NO_NORM,
            pack_norm([block.ln2 for block in blocks]),
        ),
        placement=PLACEMENTS.index(blocks[0].norm_placement),
        final_norm=pack_norm([model.ln_final]),
        head=pack_linear([[(model.head_weight, None)]], dtype),
    )


def pack_decoder(model: EncoderDecoder, dtype: WeightDtype = "float32") -> Weights:
    """All weights of a decoder; the scale of the embeddings is in the table."""
    layers = [cast(DecoderLayer, layer) for layer in model.decoder]
    head_bias = None if model.lm_head is None else model.lm_head.bias
    return Weights(
        embeddings=array(model.target_embeddings.weight * math.sqrt(model.config.d_model)),
        embedding_norm=NO_NORM,
        positions=array(model.positions.table),
        attention=_attention([layer.self_attn for layer in layers], dtype),
        cross=CrossAttention(
            pack_layers([[layer.cross_attn.q_proj] for layer in layers], dtype),
            pack_layers([[layer.cross_attn.output_proj] for layer in layers], dtype),
        ),
        feed_forward=_feed_forward([layer.ffn for layer in layers], dtype),
        norms=(
            pack_norm([layer.ln1 for layer in layers]),
            pack_norm([layer.ln2 for layer in layers]),
            pack_norm([layer.ln3 for layer in layers]),
        ),
        placement=PLACEMENTS.index(layers[0].norm_placement),
        final_norm=pack_norm([model.decoder_norm]),
        head=pack_linear([[(model.head_weight, head_bias)]], dtype),
    )


def _attention(layers: Sequence[MultiHeadSelfAttention], dtype: WeightDtype) -> Attention:
    first = layers[0]
    rope = first.rope
    return Attention(
        qkv=pack_layers([[each.q_proj, each.k_proj, each.v_proj] for each in layers], dtype),
        output=pack_layers([[each.output_proj] for each in layers], dtype),
        q_norm=pack_norm([each.q_norm for each in layers]),
        k_norm=pack_norm([each.k_norm for each in layers]),
        cos=NOTHING if rope is None else array(rope.cos),
        sin=NOTHING if rope is None else array(rope.sin),
        num_heads=first.num_heads,
        num_kv_heads=first.num_kv_heads,
        d_head=first.d_head,
        window=first.attention.window or 0,
    )


def _feed_forward(layers: Sequence[Module], dtype: WeightDtype) -> FeedForward:
    first = layers[0]
    assert isinstance(first, SwiGLU | PlainFeedForward)
    names = ("w1", "w3") if isinstance(first, SwiGLU) else ("w1",)
    return FeedForward(
        up=pack_layers([[each.get_submodule(name) for name in names] for each in layers], dtype),
        down=pack_layers([[each.get_submodule("w2")] for each in layers], dtype),
        activation=ACTIVATIONS.index(SWIGLU if isinstance(first, SwiGLU) else first.activation),
        size=first.w1.weight.shape[0],
    )


def _position_table(positions: Module | None) -> Floats:
    if positions is None:
        return NOTHING
    if isinstance(positions, LearnedPositions):
        return array(positions.weight)
    assert isinstance(positions, SinusoidalPositions)
    return array(positions.table)
