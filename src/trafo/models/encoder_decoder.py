"""The Transformer of "Attention is all you need" (Vaswani et al., 2017): source ids to target ids.

The encoder reads the source in both directions; the decoder writes the target from left to right,
attending to what it wrote and, by cross-attention, to the encoded source.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Module, ModuleList

from trafo.errors import require, require_choice
from trafo.models.base import SequenceModel, embed, require_fits_context, require_positive
from trafo.nn import (
    Dropout,
    Embedding,
    FeedForward,
    KVCache,
    LayerCache,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    NormPlacement,
    SinusoidalPositions,
    check_heads,
    padding_mask,
    residual,
)
from trafo.nn.dropout import require_dropout
from trafo.nn.precision import Device, Dtype

Placement = Literal["post", "pre"]
SharedEmbeddings = Literal["none", "target", "all"]
ActivationChoice = Literal["relu", "gelu", "silu"]


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """The shape of an EncoderDecoder, by default of the paper's base model."""

    source_vocab_size: int = 32_000
    """source vocabulary size"""
    target_vocab_size: int = 32_000
    """target vocabulary size"""
    context_length: int = 512
    """context length: most tokens per sentence, on either side"""
    d_model: int = 512
    """hidden size (residual stream width)"""
    num_encoder_layers: int = 6
    """encoder layers"""
    num_decoder_layers: int = 6
    """decoder layers"""
    num_heads: int = 8
    """attention heads per layer; each has size d_model / num_heads"""
    d_ff: int = 2048
    """feed-forward hidden size"""
    activation: ActivationChoice = "relu"
    """activation of the feed-forward layers"""
    norm_placement: Placement = "post"
    """post-norm, as in the paper, or pre-norm"""
    final_norms: bool = True
    """a final LayerNorm at the end of encoder and decoder"""
    norm_eps: float = 1e-5
    """epsilon of LayerNorm, added to the variance"""
    attention_bias: bool = False
    """biases in the attention projections"""
    head_bias: bool = False
    """a bias in the output head"""
    shared_embeddings: SharedEmbeddings = "none"
    """weight tying: target ties decoder embeddings and output head; all: the encoder's as well"""
    padding_id: int = 0
    """padding id: fills up short sentences; masked in attention"""
    dropout: float = 0.1
    """dropout probability during training, of embeddings and sublayer outputs"""
    attention_dropout: float = 0.0
    """dropout probability of attention weights; the paper does not drop them"""

    def __post_init__(self) -> None:
        sizes = ("source_vocab_size", "target_vocab_size", "context_length", "d_model", "d_ff")
        layers = ("num_encoder_layers", "num_decoder_layers", "num_heads")
        require_positive(self, (*sizes, *layers))
        check_heads(self.d_model, self.num_heads, None)
        require(
            self.d_model % 2 == 0,
            f"d_model is {self.d_model}",
            "it must be even: sinusoids come in pairs",
        )
        require_choice(get_args(ActivationChoice), activation=self.activation)
        require_choice(get_args(Placement), norm_placement=self.norm_placement)
        require_choice(get_args(SharedEmbeddings), shared_embeddings=self.shared_embeddings)
        require_dropout(self.dropout)
        require_dropout(self.attention_dropout, "attention_dropout")
        same = self.source_vocab_size == self.target_vocab_size
        require(
            same or self.shared_embeddings != "all",
            f"vocabularies of {self.source_vocab_size} and {self.target_vocab_size} differ",
            "shared_embeddings: all needs vocabularies of the same size",
        )
        require(
            self.shared_embeddings == "none" or not self.head_bias,
            f"head_bias with shared_embeddings {self.shared_embeddings}",
            "a shared table has no bias",
        )
        require(
            0 <= self.padding_id < min(self.source_vocab_size, self.target_vocab_size),
            f"padding_id {self.padding_id} is not in both vocabularies",
        )

    @property
    def d_head(self) -> int:
        """Size of each attention head."""
        return self.d_model // self.num_heads


KeysValues = tuple[
    Float[Tensor, "batch heads source d_head"], Float[Tensor, "batch heads source d_head"]
]


class EncoderLayer(Module):
    """Self-attention over the whole source, then feed-forward."""

    def __init__(self, config: EncoderDecoderConfig, device: Device, dtype: Dtype) -> None:
        super().__init__()
        self.self_attn = _self_attention(config, device, dtype, causal=False)
        self.ffn = _feed_forward(config, device, dtype)
        self.ln1, self.ln2 = (_norm(config, device, dtype) for _ in range(2))
        self.norm_placement: NormPlacement = config.norm_placement
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch 1 1 source"],
    ) -> Float[Tensor, "batch source d_model"]:
        """Add self-attention, then feed-forward, where `source_mask` is False for padding."""

        def attend(h: Tensor) -> Tensor:
            return self.dropout(self.self_attn(h, key_mask=source_mask))  # type: ignore[no-any-return]

        x = residual(x, attend, self.ln1, self.norm_placement)
        return residual(x, lambda h: self.dropout(self.ffn(h)), self.ln2, self.norm_placement)


class DecoderLayer(Module):
    """Causal self-attention over the target, cross-attention to the source, then feed-forward."""

    def __init__(self, config: EncoderDecoderConfig, device: Device, dtype: Dtype) -> None:
        super().__init__()
        self.self_attn = _self_attention(config, device, dtype, causal=True)
        self.cross_attn = MultiHeadAttention(
            config.d_model,
            config.num_heads,
            bias=config.attention_bias,
            dropout=config.attention_dropout,
            device=device,
            dtype=dtype,
        )
        self.ffn = _feed_forward(config, device, dtype)
        self.ln1, self.ln2, self.ln3 = (_norm(config, device, dtype) for _ in range(3))
        self.norm_placement: NormPlacement = config.norm_placement
        self.dropout = Dropout(config.dropout)

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


def _self_attention(
    config: EncoderDecoderConfig, device: Device, dtype: Dtype, *, causal: bool
) -> MultiHeadSelfAttention:
    return MultiHeadSelfAttention(
        config.d_model,
        config.num_heads,
        causal=causal,
        bias=config.attention_bias,
        dropout=config.attention_dropout,
        device=device,
        dtype=dtype,
    )


def _feed_forward(config: EncoderDecoderConfig, device: Device, dtype: Dtype) -> FeedForward:
    sizes = (config.d_model, config.d_ff)
    return FeedForward(*sizes, config.activation, device, dtype, bias=True)


def _norm(config: EncoderDecoderConfig, device: Device, dtype: Dtype) -> LayerNorm:
    return LayerNorm(config.d_model, config.norm_eps, device, dtype)


class Memory(NamedTuple):
    """The encoded source: a vector per position, and which positions are not padding."""

    states: Float[Tensor, "batch source d_model"]
    mask: Bool[Tensor, "batch 1 1 source"]


class DecoderCache:
    """KV cache of a decoder: keys and values of the target so far, and those of the source."""

    def __init__(self, target: KVCache) -> None:
        self.target = target
        self.source: list[KeysValues] | None = None  # filled by the first step
        self.source_mask: Tensor | None = None

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Row i becomes a copy of row `rows[i]`, for beam search."""
        self.target.reorder(rows)
        if self.source is not None and self.source_mask is not None:
            self.source = [(keys[rows], values[rows]) for keys, values in self.source]
            self.source_mask = self.source_mask[rows]


class EncoderDecoder(SequenceModel):
    """(source ids, target ids) -> logits for the token after each target position.

    Padding (`padding_id`) is on the right. The source's is masked; the target's comes after
    every real token, where the causal mask hides it.
    """

    has_source = True

    def __init__(
        self, config: EncoderDecoderConfig, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.config = config
        made = (config, device, dtype)
        d_model, shared = config.d_model, config.shared_embeddings
        std = d_model**-0.5  # 1 after the scaling, and fit for a shared head
        vocab = config.target_vocab_size
        self.target_embeddings = Embedding(vocab, d_model, device, dtype, std=std)
        # Shared weights exist once: where table or head is None, the target's table is used.
        self.source_embeddings = (
            None
            if shared == "all"
            else Embedding(config.source_vocab_size, d_model, device, dtype, std=std)
        )
        self.positions = SinusoidalPositions(d_model, config.context_length, device)
        self.dropout = Dropout(config.dropout)
        self.encoder = ModuleList(EncoderLayer(*made) for _ in range(config.num_encoder_layers))
        self.decoder = ModuleList(DecoderLayer(*made) for _ in range(config.num_decoder_layers))
        self.encoder_norm = _norm(*made) if config.final_norms else None
        self.decoder_norm = _norm(*made) if config.final_norms else None
        self.lm_head = (
            Linear(d_model, vocab, device, dtype, bias=config.head_bias)
            if shared == "none"
            else None
        )

    def forward(
        self, source_ids: Int[Tensor, "batch source"], target_ids: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Encode the source, decode the target (teacher forcing)."""
        return self.decode(target_ids, self.encode(source_ids))

    def encode(self, source_ids: Int[Tensor, "batch source"]) -> Memory:
        """Encode the source once, for any number of calls of `decode`."""
        x = self._embed(self.source_embeddings or self.target_embeddings, source_ids, None)
        mask = padding_mask(source_ids, self.config.padding_id)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(x if self.encoder_norm is None else self.encoder_norm(x), mask)

    def hidden_states(
        self,
        target_ids: Int[Tensor, "batch target"],
        memory: Memory,
        *,
        cache: DecoderCache | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Final hidden states of the decoder, which reads `memory` once if it has a cache."""
        source, source_mask = self._source_keys_values(memory, cache)
        step = None if cache is None else cache.target.begin(target_ids.shape[1], lengths)
        positions = None if step is None else step.positions
        x = self._embed(self.target_embeddings, target_ids, positions)
        for index, layer in enumerate(self.decoder):
            part = None if step is None else step.layer(index)
            x = layer(x, source[index], source_mask, cache=part)
        if step is not None:
            step.finish()
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def logits(self, states: Float[Tensor, "*lead d_model"]) -> Float[Tensor, "*lead vocab"]:
        """The output head, applied to any states."""
        out: Tensor = states @ self.head_weight.T if self.lm_head is None else self.lm_head(states)
        return out

    @property
    def head_weight(self) -> Float[Tensor, "vocab d_model"]:
        """Matrix of the output head, which is the embedding table if tied."""
        return self.target_embeddings.weight if self.lm_head is None else self.lm_head.weight

    def blocks(self) -> dict[str, Module]:
        """The encoder's layers by name.

        A decoder layer gives its keys and values of the source before it runs: FSDP must have
        gathered it by then, so it stays with the rest of the model.
        """
        return {f"encoder.{index}": layer for index, layer in enumerate(self.encoder)}

    def make_cache(self, batch: int, capacity: int | None = None) -> DecoderCache:
        """Make an empty cache for `batch` targets of `capacity` tokens (None: the context)."""
        config, weight = self.config, self.target_embeddings.weight
        target = KVCache(
            num_layers=config.num_decoder_layers,
            batch=batch,
            num_kv_heads=config.num_heads,
            capacity=min(capacity or config.context_length, config.context_length),
            d_head=config.d_head,
            device=weight.device,
            dtype=weight.dtype,
        )
        return DecoderCache(target)

    def _embed(
        self, table: Embedding, ids: Int[Tensor, "batch seq"], positions: Tensor | None
    ) -> Float[Tensor, "batch seq d_model"]:
        """Embeddings scaled by sqrt(d_model), so that the sinusoids do not dominate."""
        require_fits_context(ids, self.config.context_length)
        words = embed(table, ids) * math.sqrt(self.config.d_model)
        out: Tensor = self.dropout(self.positions(words, positions))
        return out

    def _source_keys_values(
        self, memory: Memory, cache: DecoderCache | None
    ) -> tuple[list[KeysValues], Bool[Tensor, "batch 1 1 source"]]:
        """Every decoder layer's keys and values of the source, computed once for a cache."""
        if cache is not None and cache.source is not None and cache.source_mask is not None:
            return cache.source, cache.source_mask
        states = memory.states
        source = []
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            source.append(layer.cross_attn.keys_values(states, states))
        if cache is not None:
            cache.source, cache.source_mask = source, memory.mask
        return source, memory.mask
