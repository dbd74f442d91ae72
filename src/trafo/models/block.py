"""A Transformer block: self-attention mixes positions, then feed-forward works on each alone."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.nn import Dropout, LayerCache, MultiHeadSelfAttention, NormPlacement, residual


class TransformerBlock(Module):
    """Self-attention and feed-forward, each in a residual connection; the parts are passed in."""

    def __init__(
        self,
        attn: MultiHeadSelfAttention,
        ffn: Module,
        ln1: Module | None,
        ln2: Module | None,
        *,
        norm_placement: NormPlacement = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attn = attn
        self.ffn = ffn
        self.ln1 = ln1
        self.ln2 = ln2
        self.norm_placement: NormPlacement = norm_placement
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        token_positions: Int[Tensor, "#batch seq"] | None = None,
        *,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Self-attention, then feed-forward; `cache` is this layer's part of the KV cache."""

        def attend(h: Tensor) -> Tensor:
            return self.dropout(self.attn(h, token_positions, cache=cache))  # type: ignore[no-any-return]

        def feed_forward(h: Tensor) -> Tensor:
            return self.dropout(self.ffn(h))  # type: ignore[no-any-return]

        x = residual(x, attend, self.ln1, self.norm_placement)
        return residual(x, feed_forward, self.ln2, self.norm_placement)
