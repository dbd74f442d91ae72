"""TransformerLM: a modern decoder-only language model, with a switch for each design choice.

Token embedding, pre-norm blocks of causal attention with rotary positions and SwiGLU, final
RMSNorm, untied head (the shape of Touvron et al., 2023). Every part can be swapped by a config
field, to see its effect.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch.nn import Module

from trafo import nn
from trafo.errors import require, require_choice
from trafo.models.base import require_positive
from trafo.models.causal_lm import CausalLM, TransformerBlock
from trafo.nn import FeedForwardName, NormPlacement, RotaryScaling, check_heads, default_d_ff
from trafo.nn.dropout import require_dropout
from trafo.nn.precision import Device, Dtype

NormName = Literal["rmsnorm", "layernorm"]
PositionsName = Literal["rope", "none", "sinusoidal", "learned"]
RopeScalingName = Literal["none", "linear", "llama3"]


@dataclass(frozen=True, kw_only=True)
class TransformerLMConfig:
    """The shape of a TransformerLM and its switches."""

    vocab_size: int = 10_000
    """vocabulary size: at least the tokenizer's number of tokens"""
    context_length: int = 256
    """context length: most tokens the model sees at once"""
    d_model: int = 512
    """hidden size (residual stream width)"""
    num_layers: int = 4
    """Transformer layers (blocks of attention and feed-forward)"""
    num_heads: int = 16
    """attention heads per layer"""
    d_ff: int | None = None
    """feed-forward hidden size; None: 8/3 d_model for swiglu, 4 d_model for the others"""
    head_size: int | None = None
    """size of each attention head; None: d_model / num_heads"""
    rope_theta: float = 10_000.0
    """RoPE base (theta): a larger one rotates more slowly and reaches further"""
    rope_scaling: RopeScalingName = "none"
    """RoPE scaling for longer contexts: none, linear, or llama3 (as in Llama 3.1)"""
    rope_factor: float = 1.0
    """RoPE scaling factor, which frequencies are divided by"""
    rope_low: float = 1.0
    """llama3 low-frequency factor: wavelengths above rope_original_context / rope_low are scaled"""
    rope_high: float = 4.0
    """llama3 high-frequency factor: those below rope_original_context / rope_high are not"""
    rope_original_context: int = 8192
    """llama3: context length of the original model"""
    norm_placement: NormPlacement = "pre"
    """pre-norm, post-norm (as in 2017), or no norm"""
    norm: NormName = "rmsnorm"
    """RMSNorm or LayerNorm"""
    norm_eps: float = 1e-5
    """epsilon of the norms, added before the square root"""
    positions: PositionsName = "rope"
    """position encoding: rotary (RoPE), none, sinusoidal, or learned embeddings"""
    feed_forward: FeedForwardName = "swiglu"
    """activation; swiglu adds a gate, a third matrix"""
    tied_head: bool = False
    """weight tying: the embedding table is the output head too"""
    num_kv_heads: int | None = None
    """grouped-query attention: number of key/value heads; None: as many as heads"""
    qkv_bias: bool = False
    """biases on queries, keys and values"""
    qk_norm: bool = False
    """RMSNorm on queries and keys, so that attention scores cannot grow"""
    window: int | None = None
    """sliding-window attention: window size in tokens; None: full attention"""
    dropout: float = 0.0
    """dropout probability during training"""
    embedding_norm: bool = False
    """normalize the token embeddings before the first layer"""
    embedding_std: float | None = None
    """initial standard deviation of the embeddings; None: 1, or d_model^-0.5 if tied"""
    zero_init_outputs: bool = False
    """start the output projections (output_proj, w2) at 0: each block begins as the identity"""
    head_std: float | None = None
    """initial standard deviation of the output head, 0 for uniform probabilities; None: Xavier"""

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads")
        optional = ("d_ff", "num_kv_heads", "head_size", "window", "rope_original_context")
        require_positive(self, (*sizes, *optional))
        check_heads(self.d_model, self.num_heads, self.num_kv_heads, self.head_size)
        require_choice(get_args(NormPlacement), norm_placement=self.norm_placement)
        require_choice(get_args(NormName), norm=self.norm)
        require_choice(get_args(PositionsName), positions=self.positions)
        require_choice(get_args(RopeScalingName), rope_scaling=self.rope_scaling)
        require_choice(get_args(FeedForwardName), feed_forward=self.feed_forward)
        require_dropout(self.dropout)
        require(self.rope_theta > 0, f"rope_theta is {self.rope_theta}", "it must be above 0")
        require(self.rope_factor > 0, f"rope_factor is {self.rope_factor}", "it must be above 0")
        require(
            0 < self.rope_low < self.rope_high,
            f"rope_low is {self.rope_low}, rope_high {self.rope_high}",
            "both must be above 0, and rope_high the larger one",
        )
        require(self.norm_eps >= 0, f"norm_eps is {self.norm_eps}", "it must not be negative")
        for name in ("embedding_std", "head_std"):
            value = getattr(self, name)
            require(value is None or value >= 0, f"{name} is {value}", "it must not be negative")
        require(
            self.head_std is None or not self.tied_head,
            f"head_std is {self.head_std}, but with tied_head the embedding table is the head",
            "set embedding_std instead, or untie the head",
        )
        require(
            self.positions != "rope" or self.d_head % 2 == 0,
            f"rotary positions need an even head size, it is {self.d_head}",
            "change d_model, num_heads or head_size, or choose other positions",
        )

    @property
    def d_head(self) -> int:
        """Size of each attention head."""
        return self.head_size or self.d_model // self.num_heads

    @property
    def first_std(self) -> float:
        """Standard deviation of the embedding table at the start, with its default."""
        if self.embedding_std is not None:
            return self.embedding_std
        # A tied table is also the head: with N(0, 1) entries the first logits would be huge.
        return self.d_model**-0.5 if self.tied_head else 1.0

    @property
    def rotary_scaling(self) -> RotaryScaling | None:
        """RoPE scaling for the rotary layer, if any."""
        if self.rope_scaling == "none":
            return None
        return RotaryScaling(
            kind=self.rope_scaling,
            factor=self.rope_factor,
            low=self.rope_low,
            high=self.rope_high,
            original_context=self.rope_original_context,
        )

    @property
    def feed_forward_size(self) -> int:
        """Feed-forward hidden size, with its default."""
        return self.d_ff or default_d_ff(self.feed_forward, self.d_model)


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
