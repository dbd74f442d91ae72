"""What is minimised, as a module: ids and what should follow them -> the summed loss.

DDP, FSDP and `torch.compile` all wrap a module's `forward`, so the loss is inside it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.models import CausalLM
from trafo.optim import chunked_cross_entropy


class NextTokenLoss(Module):
    """The cross-entropy of every next id, added up, without ever holding all logits."""

    def __init__(self, model: CausalLM, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(
        self, ids: Int[Tensor, "batch seq"], targets: Int[Tensor, "batch seq"]
    ) -> Float[Tensor, ""]:
        """In nats."""
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            states = self.model.hidden_states(ids)
        # The loss is computed in float32: it costs little and decides much.
        return chunked_cross_entropy(
            states.float(), self.model.head_weight, targets, reduction="sum"
        )
