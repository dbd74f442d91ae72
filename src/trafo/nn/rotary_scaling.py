"""RoPE scaling: slower rotation, for contexts longer than those of the training."""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """How the frequencies change.

    `linear` divides all frequencies by the factor (Chen et al., 2023). `llama3` (Llama 3.1) divides
    those with wavelengths above the original context / low, keeps those with wavelengths below the
    original context / high, and interpolates in between.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192

    def apply(self, frequencies: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
        """The scaled frequencies."""
        if self.kind == "linear":
            return frequencies / self.factor
        waves = self.original_context * frequencies / (2 * math.pi)  # in the original context
        kept = ((waves - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)
