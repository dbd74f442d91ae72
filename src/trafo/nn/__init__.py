"""Layers from scratch: tensors in, tensors out. They know nothing of text, files or configs.

Each is its formula and nothing else; `trafo.fast` holds the faster versions. Read in this order:
linear, norm, attention, position, feed_forward; then what they and other models need: masks,
dropout, kv_cache, cross_attention; and, for where attention came from: kernel_pooling, recurrent.
"""

from trafo.errors import check_public_types
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
from trafo.nn.feed_forward import (
    ACTIVATIONS,
    FeedForward,
    FeedForwardName,
    SwiGLU,
    default_d_ff,
    gelu,
    gelu_tanh,
    relu,
    relu2,
    silu,
)
from trafo.nn.kernel_pooling import (
    NadarayaWatson,
    average_pooling,
    kernel_weights,
    nadaraya_watson,
)
from trafo.nn.kv_cache import KVCache, LayerCache
from trafo.nn.linear import Embedding, Linear, truncated_normal_
from trafo.nn.masks import (
    length_mask,
    look_ahead_mask,
    padding_mask,
    target_mask,
    window_mask,
)
from trafo.nn.norm import LayerNorm, NormPlacement, RMSNorm, residual
from trafo.nn.position import (
    LearnedPositions,
    RotaryPositionalEmbedding,
    RotaryScaling,
    SinusoidalPositions,
)
from trafo.nn.recurrent import AdditiveAttention, GRUCell, run_gru

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
