"""Residual connections: a sublayer f adds to the stream x instead of replacing it.

pre:  x + f(norm(x))     the residual stream is never normalized, gradients pass unchanged
post: norm(x + f(x))     as in 2017; deep stacks need learning rate warm-up (Xiong et al., 2020)
none: x + f(x)           to see what the norm is for
"""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor

NormPlacement = Literal["pre", "post", "none"]


def residual(
    x: Float[Tensor, "*shape"],
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor] | None,
    placement: NormPlacement,
) -> Float[Tensor, "*shape"]:
    """One residual connection around `sublayer`; `norm` is needed unless the placement is none."""
    if placement == "none" or norm is None:
        return x + sublayer(x)
    if placement == "pre":
        return x + sublayer(norm(x))
    return norm(x + sublayer(x))
