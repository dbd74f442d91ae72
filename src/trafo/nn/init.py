"""Weight initialization: truncated normal, by inverse transform sampling.

The inverse normal CDF of a uniform number is normal; drawing the number between Phi(-cut) and
Phi(cut) truncates the tails exactly, without rejection.
"""

import math

import torch
from torch import Tensor


@torch.no_grad()
def truncated_normal_(tensor: Tensor, std: float, cut: float = 3.0) -> Tensor:
    """Fill `tensor` in place with N(0, std^2) truncated at `cut` standard deviations."""
    edge = math.erf(cut / math.sqrt(2.0))  # 2 Phi(cut) - 1
    # In float32 whatever the tensor's dtype: a rounded-up edge would map to infinity.
    draw = torch.empty_like(tensor, dtype=torch.float32).uniform_(-edge, edge).erfinv_()
    return tensor.copy_(draw.mul_(std * math.sqrt(2.0)).clamp_(-cut * std, cut * std))


def xavier_std(in_features: int, out_features: int) -> float:
    """Xavier (Glorot and Bengio, 2010): variance 2/(in+out) keeps signals and gradients scaled."""
    return math.sqrt(2.0 / (in_features + out_features))
