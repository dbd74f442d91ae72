"""Encoder and decoder layers of the 2017 Transformer, and how their parts are made."""

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import Module

from trafo.models.encoder_decoder_config import EncoderDecoderConfig
from trafo.nn import (
    Dropout,
    Embedding,
    FeedForward,
    LayerCache,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    NormPlacement,
    residual,
)
from trafo.nn.precision import Device, Dtype

KeysValues = tuple[
    Float[Tensor, "batch heads source d_head"], Float[Tensor, "batch heads source d_head"]
]


class EncoderLayer(Module):
    """Self-attention over the whole source, then feed-forward."""

    def __init__(
        self,
        self_attn: MultiHeadSelfAttention,
        ffn: Module,
        norms: tuple[Module, Module],
        norm_placement: NormPlacement,
        dropout: float,
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.ffn = ffn
        self.ln1, self.ln2 = norms
        self.norm_placement: NormPlacement = norm_placement
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch 1 1 source"],
    ) -> Float[Tensor, "batch source d_model"]:
        """Self-attention, then feed-forward; `source_mask` is False for padding."""

        def attend(h: Tensor) -> Tensor:
            return self.dropout(self.self_attn(h, key_mask=source_mask))  # type: ignore[no-any-return]

        x = residual(x, attend, self.ln1, self.norm_placement)
        return residual(x, lambda h: self.dropout(self.ffn(h)), self.ln2, self.norm_placement)


class DecoderLayer(Module):
    """Causal self-attention over the target, cross-attention to the source, then feed-forward."""

    def __init__(
        self,
        self_attn: MultiHeadSelfAttention,
        cross_attn: MultiHeadAttention,
        ffn: Module,
        norms: tuple[Module, Module, Module],
        norm_placement: NormPlacement,
        dropout: float,
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.cross_attn = cross_attn
        self.ffn = ffn
        self.ln1, self.ln2, self.ln3 = norms
        self.norm_placement: NormPlacement = norm_placement
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        source: KeysValues,
        source_mask: Bool[Tensor, "batch 1 1 source"],
        *,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """`source` are this layer's keys and values of the encoded source."""

        def attend_to_target(h: Tensor) -> Tensor:
            return self.dropout(self.self_attn(h, cache=cache))  # type: ignore[no-any-return]

        def attend_to_source(h: Tensor) -> Tensor:
            return self.dropout(self.cross_attn.attend(h, *source, source_mask))  # type: ignore[no-any-return]

        x = residual(x, attend_to_target, self.ln1, self.norm_placement)
        x = residual(x, attend_to_source, self.ln2, self.norm_placement)
        return residual(x, lambda h: self.dropout(self.ffn(h)), self.ln3, self.norm_placement)


class Parts:
    """Makes the parts of one model, all of the same shape."""

    def __init__(self, config: EncoderDecoderConfig, device: Device, dtype: Dtype) -> None:
        self.config, self.device, self.dtype = config, device, dtype

    def embedding(self, vocab_size: int) -> Embedding:
        """Token embedding."""
        std = self.config.d_model**-0.5  # 1 after the scaling, and fit for a shared head
        return Embedding(vocab_size, self.config.d_model, self.device, self.dtype, std=std)

    def head(self) -> Linear:
        """Output head."""
        config = self.config
        sizes = (config.d_model, config.target_vocab_size)
        return Linear(*sizes, self.device, self.dtype, bias=config.head_bias)

    def norm(self) -> LayerNorm:
        """LayerNorm."""
        return LayerNorm(self.config.d_model, self.config.norm_eps, self.device, self.dtype)

    def feed_forward(self) -> FeedForward:
        """Feed-forward layer with biases."""
        config = self.config
        sizes = (config.d_model, config.d_ff)
        return FeedForward(*sizes, config.activation, self.device, self.dtype, bias=True)

    def self_attention(self, *, causal: bool) -> MultiHeadSelfAttention:
        """Multi-head self-attention."""
        return MultiHeadSelfAttention(
            self.config.d_model,
            self.config.num_heads,
            causal=causal,
            bias=self.config.attention_bias,
            dropout=self.config.attention_dropout,
            device=self.device,
            dtype=self.dtype,
        )

    def cross_attention(self) -> MultiHeadAttention:
        """Multi-head cross-attention."""
        return MultiHeadAttention(
            self.config.d_model,
            self.config.num_heads,
            bias=self.config.attention_bias,
            dropout=self.config.attention_dropout,
            device=self.device,
            dtype=self.dtype,
        )

    def encoder_layer(self) -> EncoderLayer:
        """One encoder layer."""
        return EncoderLayer(
            self.self_attention(causal=False),
            self.feed_forward(),
            (self.norm(), self.norm()),
            self.config.norm_placement,
            self.config.dropout,
        )

    def decoder_layer(self) -> DecoderLayer:
        """One decoder layer."""
        return DecoderLayer(
            self.self_attention(causal=True),
            self.cross_attention(),
            self.feed_forward(),
            (self.norm(), self.norm(), self.norm()),
            self.config.norm_placement,
            self.config.dropout,
        )
