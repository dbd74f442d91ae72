"""TransformerLM: a modern decoder-only language model, with a switch for each design choice.

Token embedding, pre-norm blocks of causal attention with rotary positions and SwiGLU, final
RMSNorm, untied head (the shape of Touvron et al., 2023). Every part can be swapped by a config
field, to see its effect.
"""

import dataclasses
from typing import Any

from torch.nn import Module

from trafo import nn
from trafo.models.causal_lm import CausalLM, TransformerBlock
from trafo.models.transformer_lm_config import TransformerLMConfig
from trafo.nn.precision import Device, Dtype


class TransformerLM(CausalLM):
    """ids (batch, seq) -> logits (batch, seq, vocab). `switches` are the config's other fields."""

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int | None = None,
        rope_theta: float = 10_000.0,
        device: Device = None,
        dtype: Dtype = None,
        **switches: Any,
    ) -> None:
        config = TransformerLMConfig(
            vocab_size=vocab_size,
            context_length=context_length,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=d_ff,
            rope_theta=rope_theta,
            **switches,
        )
        rope = _rope(config, device)
        super().__init__(
            token_embeddings=nn.Embedding(vocab_size, d_model, device, dtype, std=config.first_std),
            ln_embeddings=_norm(config, device, dtype) if config.embedding_norm else None,
            position_embeddings=_added_positions(config, device, dtype),
            layers=[_block(config, rope, device, dtype) for _ in range(num_layers)],
            # After post-norm blocks the residual stream is normalized already.
            ln_final=_norm(config, device, dtype) if config.norm_placement == "pre" else None,
            lm_head=None if config.tied_head else nn.Linear(d_model, vocab_size, device, dtype),
            context_length=context_length,
            dropout=config.dropout,
        )
        self.config = config
        self._init_weights()

    def _init_weights(self) -> None:
        """Initial weights where the config differs from the layers' defaults."""
        if self.config.zero_init_outputs:
            for name, parameter in self.named_parameters():
                if name.endswith(("output_proj.weight", "ffn.w2.weight")):
                    parameter.data.zero_()
        if self.config.head_std is not None and self.lm_head is not None:
            nn.truncated_normal_(self.lm_head.weight, std=self.config.head_std)

    @classmethod
    def from_config(
        cls, config: TransformerLMConfig, device: Device = None, dtype: Dtype = None
    ) -> "TransformerLM":
        """Build the model that a config describes."""
        return cls(**dataclasses.asdict(config), device=device, dtype=dtype)


def _rope(config: TransformerLMConfig, device: Device) -> nn.RotaryPositionalEmbedding | None:
    """One table for all layers."""
    if config.positions != "rope":
        return None
    return nn.RotaryPositionalEmbedding(
        config.rope_theta, config.d_head, config.context_length, device, config.rotary_scaling
    )


def _added_positions(config: TransformerLMConfig, device: Device, dtype: Dtype) -> Module | None:
    if config.positions == "sinusoidal":
        return nn.SinusoidalPositions(config.d_model, config.context_length, device)
    if config.positions == "learned":
        return nn.LearnedPositions(config.d_model, config.context_length, device, dtype)
    return None


def _norm(config: TransformerLMConfig, device: Device, dtype: Dtype) -> Module:
    kind = nn.RMSNorm if config.norm == "rmsnorm" else nn.LayerNorm
    return kind(config.d_model, config.norm_eps, device, dtype)


def _feed_forward(config: TransformerLMConfig, device: Device, dtype: Dtype) -> Module:
    d_model, d_ff = config.d_model, config.feed_forward_size
    if config.feed_forward == "swiglu":
        return nn.SwiGLU(d_model, d_ff, device, dtype)
    return nn.FeedForward(d_model, d_ff, config.feed_forward, device, dtype)


def _block(
    config: TransformerLMConfig,
    rope: nn.RotaryPositionalEmbedding | None,
    device: Device,
    dtype: Dtype,
) -> TransformerBlock:
    attn = nn.MultiHeadSelfAttention(
        config.d_model,
        config.num_heads,
        rope=rope,
        num_kv_heads=config.num_kv_heads,
        head_size=config.head_size,
        window=config.window,
        qk_norm=config.qk_norm,
        norm_eps=config.norm_eps,
        qkv_bias=config.qkv_bias,
        dropout=config.dropout,
        device=device,
        dtype=dtype,
    )
    has_norms = config.norm_placement != "none"
    return TransformerBlock(
        attn,
        _feed_forward(config, device, dtype),
        ln1=_norm(config, device, dtype) if has_norms else None,
        ln2=_norm(config, device, dtype) if has_norms else None,
        norm_placement=config.norm_placement,
        dropout=config.dropout,
    )
