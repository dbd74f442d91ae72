"""What the compiled step reads: a decoder's weights, keys and values, and the hypotheses.

The weights of all layers are one array for each kind, in panels (`packed/panels.py`). What a model
does not have (a bias, a final norm) is an empty array.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from trafo.generate.packed.kernels import ACTIVATIONS, Floats, Ints
from trafo.generate.packed.layers import Linear, Norm
from trafo.generate.packed.panels import array, pack_layers, pack_linear, pack_norm
from trafo.generate.packed.tiles import LANES
from trafo.models import EncoderDecoder
from trafo.models.encoder_decoder_layers import DecoderLayer
from trafo.nn import FeedForward

Doubles = NDArray[np.float64]


class Decoder(NamedTuple):
    """The weights of a decoder."""

    embeddings: Floats
    """(vocab, d_model), not scaled yet"""
    embedding_scale: float
    positions: Floats
    """(context, d_model)"""
    qkv: Linear
    output: Linear
    cross_q: Linear
    cross_output: Linear
    up: Linear
    down: Linear
    norms: tuple[Norm, Norm, Norm]
    final_norm: Norm
    head: Linear
    activation: int
    """place in `packed.kernels.ACTIVATIONS`"""
    is_pre_norm: bool
    padding: int


class Memory(NamedTuple):
    """Keys and values of a batch, of the source and of the targets so far."""

    source_keys: Floats
    """(layers, sentences, heads, d_head, source); rows are padded to whole vectors"""
    source_values: Floats
    """(layers, sentences, heads, source, d_head), padded too"""
    lengths: Ints
    """(sentences,): how many of a source's keys are not padding"""
    target_keys: Floats
    """(layers, steps, rows, heads, d_head)"""
    target_values: Floats


class Beams(NamedTuple):
    """The hypotheses of a step; those of a sentence are adjacent rows, best first."""

    ids: Ints
    """(rows,), the last token"""
    totals: Doubles
    """(sentences, alive), log-probabilities"""
    sources: Ints
    """(rows,)"""
    ancestors: Ints
    """(rows, steps)"""


def pack_decoder(model: EncoderDecoder) -> Decoder:
    """All weights that a decoding step needs."""
    layers = [cast(DecoderLayer, layer) for layer in model.decoder]
    first = cast(FeedForward, layers[0].ffn)

    def linear(*paths: str) -> Linear:
        return pack_layers([[layer.get_submodule(path) for path in paths] for layer in layers])

    head_bias = None if model.lm_head is None else model.lm_head.bias
    return Decoder(
        embeddings=array(model.target_embeddings.weight),
        embedding_scale=math.sqrt(model.config.d_model),
        positions=array(model.positions.table),
        qkv=linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        output=linear("self_attn.output_proj"),
        cross_q=linear("cross_attn.q_proj"),
        cross_output=linear("cross_attn.output_proj"),
        up=linear("ffn.w1"),
        down=linear("ffn.w2"),
        norms=(
            pack_norm([layer.ln1 for layer in layers]),
            pack_norm([layer.ln2 for layer in layers]),
            pack_norm([layer.ln3 for layer in layers]),
        ),
        final_norm=pack_norm([model.decoder_norm]),
        head=pack_linear([[(model.head_weight, head_bias)]]),
        activation=ACTIVATIONS.index(first.activation),
        is_pre_norm=layers[0].norm_placement == "pre",
        padding=model.config.padding_id,
    )


def make_memory(
    model: EncoderDecoder, states: Tensor, lengths: Ints, *, beam: int, steps: int
) -> Memory:
    """For sources with these encoder `states`: their keys and values; the targets' are empty."""
    heads = model.config.num_heads, model.config.d_head
    cross = [cast(DecoderLayer, layer).cross_attn for layer in model.decoder]
    keys = torch.stack([each.k_proj(states) for each in cross])
    values = torch.stack([each.v_proj(states) for each in cross])
    target = len(cross), steps, beam * len(states), *heads
    return Memory(
        _whole_vectors(keys.view(*keys.shape[:3], *heads).permute(0, 1, 3, 4, 2)),
        _whole_vectors(values.view(*values.shape[:3], *heads).transpose(2, 3)),
        lengths,
        np.empty(target, np.float32),
        np.empty(target, np.float32),
    )


def _whole_vectors(tensor: Tensor) -> Floats:
    """With zeros at the end of each row, up to a multiple of `LANES`."""
    return array(functional.pad(tensor, (0, -tensor.shape[-1] % LANES)))
