"""A model's weights in the order in which the kernels read them: panels of `LANES` output rows.

float32 as they are, or int8 with a scale for each output row: round(w / scale), where scale is the
row's largest magnitude / 127. int8 takes a quarter of the memory, and with few rows the time goes
into reading memory; its products are integers (`int_kernels.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor
from torch.nn import Module

from trafo.generate.config import WeightDtype
from trafo.generate.packed.kernels import ACTIVATIONS, SWIGLU, Floats
from trafo.generate.packed.layers import (
    PLACEMENTS,
    Attention,
    CrossAttention,
    FeedForward,
    Linear,
    Norm,
    Weights,
)
from trafo.generate.packed.tiles import LANES
from trafo.models import CausalLM, EncoderDecoder, TransformerBlock
from trafo.models.encoder_decoder import DecoderLayer
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


NOTHING: Floats = np.empty((0, 0), np.float32)
"""in the place of what a model does not have"""


def quantize(
    weight: Float[Tensor, "out in"],
) -> tuple[Int8[Tensor, "out in"], Float[Tensor, " out"]]:
    """int8 weights and the scale of each row: weight = int8 * scale, up to scale / 2."""
    scales = weight.abs().amax(1).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


Part = tuple[Tensor, Tensor | None]
"""weight and bias"""


def pack_layers(layers: Sequence[Sequence[Module]], dtype: WeightDtype = "float32") -> Linear:
    """The same linear layer of every block, or several of them, whose rows are stacked."""
    parts = [[cast(LinearLayer, part) for part in layer] for layer in layers]
    return pack_linear([[(part.weight, part.bias) for part in layer] for layer in parts], dtype)


def pack_linear(layers: Sequence[Sequence[Part]], dtype: WeightDtype = "float32") -> Linear:
    """The same from weights and biases alone."""
    has_bias = any(bias is not None for _, bias in layers[0])
    matrices = (torch.cat([weight.detach() for weight, _ in layer]) for layer in layers)
    floats, ints, scales = _NO_FLOATS, _NO_INTS, NOTHING
    if dtype == "int8":
        small = [quantize(matrix) for matrix in matrices]
        ints = _stack([_paired_panels(matrix.numpy()) for matrix, _ in small])
        scales = _stack([_padded(scale.numpy()) for _, scale in small])
    else:
        floats = _stack([_panels(matrix.numpy()) for matrix in matrices])
    bias = _stack([_bias(layer) for layer in layers]) if has_bias else NOTHING
    return Linear(floats, ints, scales, bias)


def pack_norm(layers: Sequence[Module | None]) -> Norm:
    """The same norm of every block; None: there is none."""
    if layers[0] is None:
        return NO_NORM
    norms = [layer for layer in layers if isinstance(layer, RMSNorm | LayerNorm)]
    assert len(norms) == len(layers)
    gains = np.stack([array(norm.weight) for norm in norms])
    shifts = [array(norm.bias) for norm in norms if isinstance(norm, LayerNorm)]
    return Norm(gains, np.stack(shifts) if shifts else NOTHING, norms[0].eps)


def array(tensor: Tensor) -> Floats:
    """A tensor as an array of adjacent numbers."""
    return np.ascontiguousarray(tensor.detach().numpy())


_NO_FLOATS = np.empty((0, 0, 0, LANES), np.float32)
_NO_INTS = np.empty((0, 0, 0, LANES, 2), np.int8)
NO_LINEAR = Linear(_NO_FLOATS, _NO_INTS, NOTHING, NOTHING)
NO_NORM = Norm(NOTHING, NOTHING, 0.0)


def _stack(layers: list[np.ndarray]) -> np.ndarray:
    """One array of all, freeing each as it is copied."""
    every = np.empty((len(layers), *layers[0].shape), layers[0].dtype)
    for place in reversed(range(len(layers))):
        every[place] = layers.pop()
    return every


def _panels(matrix: np.ndarray) -> np.ndarray:
    """(out, in) -> (out / LANES, in, LANES)."""
    padded = _padded(matrix)
    cut = padded.reshape(-1, LANES, matrix.shape[1])
    return np.ascontiguousarray(cut.transpose(0, 2, 1))


def _paired_panels(matrix: np.ndarray) -> np.ndarray:
    """(out, in) -> (out / LANES, in / 2, LANES, 2); a last column without a pair gets zeros."""
    padded = np.pad(_padded(matrix), ((0, 0), (0, matrix.shape[1] % 2)))
    cut = padded.reshape(-1, LANES, padded.shape[1] // 2, 2)
    return np.ascontiguousarray(cut.transpose(0, 2, 1, 3))


def _padded(rows: np.ndarray) -> np.ndarray:
    """With rows of zeros up to whole panels."""
    missing = -len(rows) % LANES
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])


def _bias(layer: Sequence[Part]) -> Floats:
    parts = [
        np.zeros(len(weight), np.float32) if bias is None else bias.detach().numpy()
        for weight, bias in layer
    ]
    return _padded(np.concatenate(parts))
