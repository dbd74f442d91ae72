"""softmax(x)_i = exp(x_i) / sum_j exp(x_j)."""

from jaxtyping import Float
from torch import Tensor

from trafo.nn.precision import at_least_float32


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """Positive numbers that sum to 1 along `dim`, computed in float32.

    Subtracting the maximum changes nothing (it cancels) and keeps exp from overflowing.
    """
    wide = at_least_float32(x)
    powers = (wide - wide.amax(dim, keepdim=True).detach()).exp()
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)
