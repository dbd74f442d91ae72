"""TransformerLM <-> Hugging Face's Llama: same network, other names, other order of rotary pairs.

We rotate neighbours (2k, 2k+1), as the RoPE paper does; Hugging Face rotates (k, k + d/2). Moving
the rows of the query and key matrices accordingly makes both compute the same scores.
"""

from typing import Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from trafo.checkpoint.convert.fill import fill, refuse_unknown, require_layers
from trafo.checkpoint.convert.names import NameTable, expand, first_missing, with_weights
from trafo.errors import ConfigError, FormatError
from trafo.models import CausalLM, TransformerLM, TransformerLMConfig

NAMES: NameTable = with_weights(
    (
        ("token_embeddings", "model.embed_tokens"),
        ("layers.{i}.attn.q_proj", "model.layers.{i}.self_attn.q_proj"),
        ("layers.{i}.attn.k_proj", "model.layers.{i}.self_attn.k_proj"),
        ("layers.{i}.attn.v_proj", "model.layers.{i}.self_attn.v_proj"),
        ("layers.{i}.attn.output_proj", "model.layers.{i}.self_attn.o_proj"),
        ("layers.{i}.ln1", "model.layers.{i}.input_layernorm"),
        ("layers.{i}.ln2", "model.layers.{i}.post_attention_layernorm"),
        ("layers.{i}.ffn.w1", "model.layers.{i}.mlp.gate_proj"),
        ("layers.{i}.ffn.w2", "model.layers.{i}.mlp.down_proj"),
        ("layers.{i}.ffn.w3", "model.layers.{i}.mlp.up_proj"),
        ("ln_final", "model.norm"),
        ("lm_head", "lm_head"),
    )
)

# The switches of a TransformerLM that Llama has no counterpart for, and what it has instead.
_LLAMA_HAS = {
    "norm_placement": "pre",
    "norm": "rmsnorm",
    "positions": "rope",
    "feed_forward": "swiglu",
    "qk_norm": False,
    "window": None,
    "embedding_norm": False,
}


def to_llama_config(config: TransformerLMConfig) -> dict[str, Any]:
    """What goes into config.json."""
    require_llama_shape(config)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "hidden_size": config.d_model,
        "intermediate_size": config.feed_forward_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads or config.num_heads,
        "head_dim": config.d_head,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied_head,
        # Theirs default to 1 and 2, which are ordinary tokens here.
        "bos_token_id": None,
        "eos_token_id": None,
    }


def require_llama_shape(config: TransformerLMConfig) -> None:
    for field, needed in _LLAMA_HAS.items():
        value = getattr(config, field)
        if value != needed:
            raise ConfigError(
                f"{field} is {value!r}, which Llama's shape cannot express",
                hint=f"only models with {field} {needed!r} can be written this way",
            )


def from_llama_config(theirs: dict[str, Any]) -> TransformerLMConfig:
    """Our config from config.json; what we cannot compute is refused, not ignored."""
    rope = theirs.get("rope_parameters") or theirs.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    heads, d_model = theirs["num_attention_heads"], theirs["hidden_size"]
    _refuse(kind != "default", f"rotary scaling {kind!r}")
    _refuse(theirs.get("hidden_act", "silu") != "silu", f"activation {theirs.get('hidden_act')!r}")
    _refuse(bool(theirs.get("attention_bias")), "biases in attention")
    _refuse(bool(theirs.get("mlp_bias")), "biases in the feed-forward part")
    _refuse((theirs.get("head_dim") or d_model // heads) * heads != d_model, "a free head size")
    return TransformerLMConfig(
        vocab_size=theirs["vocab_size"],
        context_length=theirs["max_position_embeddings"],
        d_model=d_model,
        num_layers=theirs["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=theirs.get("num_key_value_heads"),
        d_ff=theirs["intermediate_size"],
        rope_theta=float(rope.get("rope_theta") or theirs.get("rope_theta") or 10_000.0),
        norm_eps=theirs.get("rms_norm_eps", 1e-6),
        tied_head=theirs.get("tie_word_embeddings", False),
    )


def _refuse(found: bool, what: str) -> None:
    if found:
        raise FormatError(f"the model uses {what}, which TransformerLM does not have")


def to_llama_state(model: TransformerLM) -> dict[str, Tensor]:
    names = expand(NAMES, model.config.num_layers)
    return {
        names[ours]: to_halves(tensor, model.config.d_head) if _is_rotated(ours) else tensor
        for ours, tensor in model.state_dict().items()
    }


def from_llama_state(theirs: dict[str, Tensor], config: TransformerLMConfig) -> CausalLM:
    """A model with these weights, in their dtype."""
    require_layers(config.num_layers, theirs)
    names = expand(NAMES, config.num_layers)
    if config.tied_head:
        del names["lm_head.weight"]
    missing = first_missing(names, theirs)
    if missing is not None:
        raise FormatError(f"no tensor {missing!r}", hint="the weights do not fit config.json")
    harmless = ("rotary_emb.inv_freq", *(["lm_head.weight"] * config.tied_head))
    refuse_unknown(theirs, names.values(), harmless)
    state = {
        ours: to_pairs(theirs[name], config.d_head) if _is_rotated(ours) else theirs[name]
        for ours, name in names.items()
    }
    return fill(config, state)


def _is_rotated(name: str) -> bool:
    return name.endswith(("q_proj.weight", "k_proj.weight"))


def to_halves(weight: Float[Tensor, "rows d_in"], d_head: int) -> Float[Tensor, "rows d_in"]:
    """Neighbouring pairs (2k, 2k+1) of each head become (k, k + d/2)."""
    order = "(heads pair two) d_in -> (heads two pair) d_in"
    return rearrange(weight, order, two=2, pair=d_head // 2).contiguous()


def to_pairs(weight: Float[Tensor, "rows d_in"], d_head: int) -> Float[Tensor, "rows d_in"]:
    """And back."""
    order = "(heads two pair) d_in -> (heads pair two) d_in"
    return rearrange(weight, order, two=2, pair=d_head // 2).contiguous()
