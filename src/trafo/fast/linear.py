"""W x + b in one pass over memory instead of a product and then a sum; or in mixed precision."""

import torch
from jaxtyping import Float
from torch import Tensor

from trafo.fast.mixed import is_mixed, mixed_product
from trafo.nn import Linear


class FastLinear(Linear):
    """Linear whose product starts from the bias, or has bfloat16 factors under autocast."""

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """As `Linear.forward`."""
        if is_mixed():
            out = mixed_product(x, self.weight)
            return out if self.bias is None else out + self.bias
        if self.bias is None:
            return super().forward(x)
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight.T)
        return rows.view(*x.shape[:-1], self.weight.shape[0])
