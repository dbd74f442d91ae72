"""GPT-2 (Radford et al., 2019) in its four sizes.

Learned positions, pre-norm with LayerNorm, tanh-GELU, biases everywhere but in the head, which is
tied to the embedding table.
"""

import math
from dataclasses import dataclass

from trafo.errors import require
from trafo.models.base import require_positive
from trafo.models.causal_lm import CausalLM, TransformerBlock
from trafo.nn import (
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadSelfAttention,
    check_heads,
    truncated_normal_,
)
from trafo.nn.dropout import require_dropout
from trafo.nn.precision import Device, Dtype


@dataclass(frozen=True, kw_only=True)
class GPT2Config:
    """The shape of a GPT-2, by default of its smallest size."""

    vocab_size: int = 50_257
    """vocabulary size: at least the tokenizer's number of tokens"""
    context_length: int = 1024
    """context length: most tokens the model sees at once"""
    d_model: int = 768
    """hidden size (residual stream width)"""
    num_layers: int = 12
    """Transformer layers (blocks of attention and feed-forward)"""
    num_heads: int = 12
    """attention heads per layer; each has size d_model / num_heads"""
    d_ff: int | None = None
    """feed-forward hidden size; None: 4 d_model"""
    tied_head: bool = True
    """weight tying: the embedding table is the output head too"""
    norm_eps: float = 1e-5
    """epsilon of LayerNorm, added to the variance"""
    dropout: float = 0.0
    """dropout probability during training"""

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads")
        require_positive(self, (*sizes, "d_ff"))
        check_heads(self.d_model, self.num_heads, None)
        require_dropout(self.dropout)
        require(self.norm_eps >= 0, f"norm_eps is {self.norm_eps}", "it must not be negative")

    @property
    def d_head(self) -> int:
        """Size of each attention head."""
        return self.d_model // self.num_heads

    @property
    def feed_forward_size(self) -> int:
        """Feed-forward hidden size, with its default."""
        return self.d_ff or 4 * self.d_model


GPT2_PRESETS = {
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(d_model=1024, num_layers=24, num_heads=16),
    "gpt2-large": GPT2Config(d_model=1280, num_layers=36, num_heads=20),
    "gpt2-xl": GPT2Config(d_model=1600, num_layers=48, num_heads=25),
}


class GPT2(CausalLM):
    """ids (batch, seq) -> logits (batch, seq, vocab)."""

    def __init__(self, config: GPT2Config, device: Device = None, dtype: Dtype = None) -> None:
        d_model, eps = config.d_model, config.norm_eps
        super().__init__(
            token_embeddings=Embedding(config.vocab_size, d_model, device, dtype, std=0.02),
            position_embeddings=LearnedPositions(d_model, config.context_length, device, dtype),
            layers=[_block(config, device, dtype) for _ in range(config.num_layers)],
            ln_final=LayerNorm(d_model, eps, device, dtype),
            lm_head=None if config.tied_head else Linear(d_model, config.vocab_size, device, dtype),
            context_length=config.context_length,
            dropout=config.dropout,
        )
        self.config = config
        self._init_weights()

    def _init_weights(self) -> None:
        """Draw from N(0, 0.02^2), residual output projections scaled by 1/sqrt(2 num_layers)."""
        additions = 2 * len(self.layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                adds_to_stream = name.endswith(("output_proj.weight", "ffn.w2.weight"))
                std = 0.02 / math.sqrt(additions) if adds_to_stream else 0.02
                truncated_normal_(parameter, std=std)


def _block(config: GPT2Config, device: Device, dtype: Dtype) -> TransformerBlock:
    d_model, eps = config.d_model, config.norm_eps
    attn = MultiHeadSelfAttention(
        d_model,
        config.num_heads,
        bias=True,
        dropout=config.dropout,
        device=device,
        dtype=dtype,
    )
    ffn = FeedForward(d_model, config.feed_forward_size, "gelu_tanh", device, dtype, bias=True)
    return TransformerBlock(
        attn,
        ffn,
        LayerNorm(d_model, eps, device, dtype),
        LayerNorm(d_model, eps, device, dtype),
        dropout=config.dropout,
    )
