"""The layers of sequence models before Transformers: a recurrent unit and additive attention.

Gated recurrent unit (Cho et al., 2014):
r = sigmoid(Wr x + Ur h), z = sigmoid(Wz x + Uz h), n = tanh(Wn x + bn + r * (Un h + cn))
h' = (1 - z) * n + z * h: the gate z keeps the old state, r decides how much of it the new one sees.

Additive attention (Bahdanau, Cho and Bengio, 2015): score(q, k) = w . tanh(Wq q + Wk k).
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


class GRUCell(Module):
    """One step, with the three matrices for r, z and n stacked as in torch."""

    def __init__(
        self, input_size: int, hidden_size: int, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_proj = Linear(input_size, 3 * hidden_size, device, dtype, bias=True)
        self.hidden_proj = Linear(hidden_size, 3 * hidden_size, device, dtype, bias=True)

    def forward(
        self, x: Float[Tensor, "batch d_input"], h: Float[Tensor, "batch d_hidden"]
    ) -> Float[Tensor, "batch d_hidden"]:
        """The next state from input x and state h."""
        return self.step(self.input_proj(x), h)

    def step(
        self, projected: Float[Tensor, "batch d_gates"], h: Float[Tensor, "batch d_hidden"]
    ) -> Float[Tensor, "batch d_hidden"]:
        """One step with W x already computed: for known inputs, one product for all steps."""
        input_r, input_z, input_n = projected.chunk(3, dim=-1)
        hidden_r, hidden_z, hidden_n = self.hidden_proj(h).chunk(3, dim=-1)
        r = torch.sigmoid(input_r + hidden_r)
        z = torch.sigmoid(input_z + hidden_z)
        n = torch.tanh(input_n + r * hidden_n)
        return (1.0 - z) * n + z * h


def run_gru(
    cell: GRUCell,
    x: Float[Tensor, "batch seq d_input"],
    real: Bool[Tensor, "batch seq"],
    *,
    reverse: bool = False,
) -> Float[Tensor, "batch seq d_hidden"]:
    """Compute all states of one direction from zero, where padding leaves the state unchanged."""
    projected = cell.input_proj(x)
    h = x.new_zeros(x.shape[0], cell.hidden_size)
    states = [h] * x.shape[1]
    order = range(x.shape[1])
    for i in reversed(order) if reverse else order:
        h = torch.where(real[:, i, None], cell.step(projected[:, i], h), h)
        states[i] = h
    return torch.stack(states, dim=1)


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
