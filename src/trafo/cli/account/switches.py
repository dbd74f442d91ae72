"""Every field of every model's config as an optional flag: what is not said stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import arg

_OWN = "(default: the model's)"


def _choice(*names: str) -> Any:
    return arg(metavar=f"{{{','.join(names)}}}", help_behavior_hint=_OWN)


Int = Annotated[int | None, arg(metavar="INT", help_behavior_hint=_OWN)]
Float = Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint=_OWN)]
Bool = Annotated[bool | None, _choice("True", "False")]
NormPlacement = Annotated[Literal["pre", "post", "none"] | None, _choice("pre", "post", "none")]
Norm = Annotated[Literal["rmsnorm", "layernorm"] | None, _choice("rmsnorm", "layernorm")]
Positions = Annotated[
    Literal["rope", "none", "sinusoidal", "learned"] | None,
    _choice("rope", "none", "sinusoidal", "learned"),
]
FeedForward = Annotated[
    Literal["swiglu", "silu", "gelu", "relu", "relu2"] | None,
    _choice("swiglu", "silu", "gelu", "relu", "relu2"),
]
Activation = Annotated[Literal["relu", "gelu", "silu"] | None, _choice("relu", "gelu", "silu")]
Shared = Annotated[Literal["none", "target", "all"] | None, _choice("none", "target", "all")]
Kernel = Annotated[Literal["readable", "fused"] | None, _choice("readable", "fused")]


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The fields of all models; each model takes its own."""

    vocab_size: Int = None
    """number of tokens in the vocabulary"""
    context_length: Int = None
    """tokens of a row; the model's positions reach that far"""
    d_model: Int = None
    """numbers in the residual stream"""
    num_layers: Int = None
    """blocks of a language model"""
    num_heads: Int = None
    """attention heads"""
    num_kv_heads: Int = None
    """heads of keys and values, if fewer"""
    d_ff: Int = None
    """numbers inside the feed-forward part"""
    feed_forward: FeedForward = None
    """kind of feed-forward part of a transformer-lm"""
    norm_placement: NormPlacement = None
    """where norms stand"""
    norm: Norm = None
    """kind of norm"""
    norm_eps: Float = None
    """what a norm adds to the variance"""
    positions: Positions = None
    """how a transformer-lm knows the order"""
    rope_theta: Float = None
    """base of the rotary angles"""
    tied_head: Bool = None
    """whether the embedding table is the head too"""
    qk_norm: Bool = None
    """norms on queries and keys"""
    window: Int = None
    """how far back attention looks"""
    dropout: Float = None
    """share of numbers zeroed in training"""
    kernel: Kernel = None
    """how attention is computed"""
    embedding_norm: Bool = None
    """a norm on the embeddings"""
    embedding_std: Float = None
    """how widely the embedding table starts"""
    zero_init_outputs: Bool = None
    """whether what adds to the stream starts at 0"""
    head_std: Float = None
    """how widely the head starts"""
    source_vocab_size: Int = None
    """tokens an encoder knows"""
    target_vocab_size: Int = None
    """tokens a decoder of an encoder knows"""
    num_encoder_layers: Int = None
    """layers of the encoder"""
    num_decoder_layers: Int = None
    """layers of the decoder"""
    activation: Activation = None
    """inside the encoder-decoder's feed-forward parts"""
    final_norms: Bool = None
    """norms behind encoder and decoder"""
    attention_bias: Bool = None
    """biases in the encoder-decoder's projections"""
    head_bias: Bool = None
    """a bias in the encoder-decoder's head"""
    shared_embeddings: Shared = None
    """which tables the encoder-decoder shares with its head"""
    d_hidden: Int = None
    """numbers in the state of a recurrent model"""
    padding_id: Int = None
    """the id that fills short rows"""

    def given(self) -> dict[str, Any]:
        """What was said."""
        values = {field.name: getattr(self, field.name) for field in fields(Switches)}
        return {name: value for name, value in values.items() if value is not None}
