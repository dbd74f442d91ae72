"""Single-head attention: the formula with one projection each, the step before multi-head."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import Module

from trafo.nn.dot_product import attention_weights, weighted_mean
from trafo.nn.linear import Linear


class SingleHeadAttention(Module):
    """attention(Wq x, Wk y, Wv y); sizes of keys and values are free."""

    def __init__(
        self,
        d_model: int,
        d_k: int | None = None,
        d_v: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.q_proj = Linear(d_model, d_k or d_model, device, dtype)
        self.k_proj = Linear(d_model, d_k or d_model, device, dtype)
        self.v_proj = Linear(d_model, d_v or d_model, device, dtype)

    def forward(
        self,
        query: Float[Tensor, "*lead queries d_model"],
        key: Float[Tensor, "*lead keys d_model"],
        value: Float[Tensor, "*lead keys d_model"],
        mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
        *,
        weights_out: list[Tensor] | None = None,
    ) -> Float[Tensor, "*lead queries d_v"]:
        weights = attention_weights(self.q_proj(query), self.k_proj(key), mask)
        if weights_out is not None:
            weights_out.append(weights)
        return weighted_mean(weights, self.v_proj(value))
