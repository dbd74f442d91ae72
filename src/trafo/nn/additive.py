"""Additive attention (Bahdanau, Cho and Bengio, 2015): score(q, k) = w . tanh(Wq q + Wk k).

A small network compares query and key, so they may differ in size. Dot-product attention replaced
it because a matrix product computes all scores at once, without (queries x keys x hidden) numbers.
"""

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import Module

from trafo.nn.attention import masked_softmax, softmax, weighted_mean
from trafo.nn.linear import Linear
from trafo.nn.precision import Device, Dtype


class AdditiveAttention(Module):
    """Attention with a learned comparison of queries (d_query) and keys (d_key)."""

    def __init__(
        self, d_query: int, d_key: int, d_hidden: int, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.q_proj = Linear(d_query, d_hidden, device, dtype)
        self.k_proj = Linear(d_key, d_hidden, device, dtype)
        self.score = Linear(d_hidden, 1, device, dtype)

    def forward(
        self,
        query: Float[Tensor, "*lead queries d_query"],
        projected_key: Float[Tensor, "*lead keys d_hidden"],
        value: Float[Tensor, "*lead keys d_value"],
        mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
    ) -> Float[Tensor, "*lead queries d_value"]:
        """Keys are passed as `k_proj(key)`: a decoder projects them once for all steps."""
        return weighted_mean(self.weights(query, projected_key, value, mask), value)

    def weights(
        self,
        query: Float[Tensor, "*lead queries d_query"],
        projected_key: Float[Tensor, "*lead keys d_hidden"],
        value: Float[Tensor, "*lead keys d_value"],
        mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
    ) -> Float[Tensor, "*lead queries keys"]:
        """The attention weights that `forward` uses for the same arguments."""
        compared = torch.tanh(self.q_proj(query)[..., :, None, :] + projected_key[..., None, :, :])
        vector = self.score.weight[0]
        scores = einsum(compared, vector, "... queries keys hidden, hidden -> ... queries keys")
        return softmax(scores, dim=-1) if mask is None else masked_softmax(scores, mask)
