"""The settings of the 2017 encoder-decoder."""

from dataclasses import dataclass
from typing import Literal, get_args

from trafo.errors import require, require_choice
from trafo.models.validate import require_positive
from trafo.nn import check_heads
from trafo.nn.dropout import require_dropout

Placement = Literal["post", "pre"]
SharedEmbeddings = Literal["none", "target", "all"]
ActivationChoice = Literal["relu", "gelu", "silu"]


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """The shape of an EncoderDecoder; the defaults are the paper's base model."""

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
