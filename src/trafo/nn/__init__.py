"""Layers from scratch: tensors in, tensors out. They know nothing of text, files or configs.

Each is its formula and nothing else; `trafo.fast` holds the faster versions. Read in this order:
linear, norm, attention, rotary, swiglu; then what other models and switches need: layer_norm,
activation, feed_forward, position, rotary_scaling, masks, dropout, kv_cache, cross_attention; and,
for where attention came from: kernel_pooling, additive, recurrent.
"""

from trafo.errors import check_public_types
from trafo.nn.activation import ACTIVATIONS, gelu, gelu_tanh, relu, relu2, silu
from trafo.nn.additive import AdditiveAttention
from trafo.nn.attention import (
    HeadsAttention,
    MultiHeadSelfAttention,
    attention_weights,
    check_heads,
    scaled_dot_product_attention,
    softmax,
)
from trafo.nn.cross_attention import MultiHeadAttention, SingleHeadAttention
from trafo.nn.dropout import Dropout, dropout_by_row
from trafo.nn.feed_forward import FeedForward, FeedForwardName, default_d_ff
from trafo.nn.kernel_pooling import (
    NadarayaWatson,
    average_pooling,
    kernel_weights,
    nadaraya_watson,
)
from trafo.nn.kv_cache import KVCache, LayerCache
from trafo.nn.layer_norm import LayerNorm
from trafo.nn.linear import Embedding, Linear, truncated_normal_
from trafo.nn.masks import (
    length_mask,
    look_ahead_mask,
    padding_mask,
    target_mask,
    window_mask,
)
from trafo.nn.norm import NormPlacement, RMSNorm, residual
from trafo.nn.position import LearnedPositions, SinusoidalPositions
from trafo.nn.recurrent import GRUCell, run_gru
from trafo.nn.rotary import RotaryPositionalEmbedding
from trafo.nn.rotary_scaling import RotaryScaling
from trafo.nn.swiglu import SwiGLU

__all__ = [
    "ACTIVATIONS",
    "AdditiveAttention",
    "Dropout",
    "Embedding",
    "FeedForward",
    "FeedForwardName",
    "GRUCell",
    "HeadsAttention",
    "KVCache",
    "LayerCache",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "NadarayaWatson",
    "NormPlacement",
    "RMSNorm",
    "RotaryPositionalEmbedding",
    "RotaryScaling",
    "SingleHeadAttention",
    "SinusoidalPositions",
    "SwiGLU",
    "attention_weights",
    "average_pooling",
    "check_heads",
    "default_d_ff",
    "dropout_by_row",
    "gelu",
    "gelu_tanh",
    "kernel_weights",
    "length_mask",
    "look_ahead_mask",
    "nadaraya_watson",
    "padding_mask",
    "relu",
    "relu2",
    "residual",
    "run_gru",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "target_mask",
    "truncated_normal_",
    "window_mask",
]

check_public_types(globals(), __all__)
