"""The config of a TransformerLM: its shape, and a switch for each choice in it."""

from dataclasses import dataclass
from typing import Literal, get_args

from trafo.errors import require, require_choice
from trafo.models.validate import require_positive
from trafo.nn import FeedForwardName, NormPlacement, RotaryScaling, check_heads, default_d_ff
from trafo.nn.dropout import require_dropout

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
        """RoPE scaling for the rotary layer; None: no scaling."""
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
