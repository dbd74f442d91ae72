"""Token embedding: each id's vector is a row of a table."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.init import truncated_normal_


class Embedding(Module):
    """A table (num_embeddings, embedding_dim), N(0, std^2) truncated at 3 std."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        std: float = 1.0,
    ) -> None:
        super().__init__()
        table = torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(truncated_normal_(table, std=std))

    def forward(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... d_model"]:
        """The rows of these ids."""
        # Not weight[ids]: its gradient is added up in the order in which threads happen to run,
        # here in the order of the ids, the same every time (and ten times as fast).
        return self.weight.index_select(0, ids.flatten()).view(*ids.shape, -1)

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"{self.weight.shape[0]} ids -> {self.weight.shape[1]}"
