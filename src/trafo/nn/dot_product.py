"""Scaled dot-product attention: softmax(Q K^T / sqrt(d_k)) V (Vaswani et al., 2017).

Each query takes a weighted mean of the values; the weights say how well the keys fit the query.
Dividing by sqrt(d_k) keeps the scores of random vectors near size 1, where softmax still learns.
"""

import math

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from trafo.nn.softmax import softmax


def attention_weights(
    q: Float[Tensor, "*#lead queries d_k"],
    k: Float[Tensor, "*#lead keys d_k"],
    mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
) -> Float[Tensor, "*lead queries keys"]:
    """Rows of non-negative numbers that sum to 1, or to 0 where the mask leaves nothing."""
    scores = einsum(q, k, "... queries d, ... keys d -> ... queries keys") / math.sqrt(q.shape[-1])
    return softmax(scores, dim=-1) if mask is None else masked_softmax(scores, mask)


def masked_softmax(
    scores: Float[Tensor, "*shape"], mask: Bool[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """softmax over the last dimension among what `mask` leaves; all zeros where it leaves nothing.

    Forbidden scores become the lowest finite number, not -inf: an empty row would be inf - inf.
    Their weights then underflow to exactly 0, save in an empty row, which the second fill clears.
    """
    lowest = torch.finfo(scores.dtype).min
    return softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)


def scaled_dot_product_attention(
    q: Float[Tensor, "*#lead queries d_k"],
    k: Float[Tensor, "*#lead keys d_k"],
    v: Float[Tensor, "*#lead keys d_v"],
    mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
) -> Float[Tensor, "*lead queries d_v"]:
    """The formula, for any leading dimensions; True in `mask` = attend."""
    return weighted_mean(attention_weights(q, k, mask), v)


def weighted_mean(
    weights: Float[Tensor, "*#lead queries keys"], values: Float[Tensor, "*#lead keys d_v"]
) -> Float[Tensor, "*lead queries d_v"]:
    return einsum(weights, values, "... queries keys, ... keys d -> ... queries d")
