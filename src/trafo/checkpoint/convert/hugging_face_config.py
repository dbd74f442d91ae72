"""Our configs <-> Hugging Face's `config.json`: Llama, Mistral, Qwen2, Qwen3 and GPT-2.

The first four are one network, TransformerLM, with a few switches: Mistral may have a sliding
window, Qwen2 has biases on queries, keys and values, Qwen3 norms queries and keys.

Biases go out as Llama's `attention_bias`, with one of zeros on the output: in a folder that names
Qwen2, transformers replaces the tokenizer by Qwen2's own.
"""

from dataclasses import asdict
from typing import Any, Literal

from trafo.errors import ConfigError, FormatError
from trafo.models import GPT2Config, TransformerLMConfig

Family = Literal["llama", "mistral", "qwen2", "qwen3"]
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_LLAMA_SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
}
"""our names of the sizes, and theirs in config.json"""
_GPT2_SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "n_positions",
    "d_model": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
}
"""our names of the sizes, and theirs in config.json"""
_ORIGINAL = "original_max_position_embeddings"
# The switches of a TransformerLM that none of them has, and what they have instead.
_ALL_HAVE = {
    "norm_placement": "pre",
    "norm": "rmsnorm",
    "positions": "rope",
    "feed_forward": "swiglu",
    "embedding_norm": False,
}


def family_of(config: TransformerLMConfig) -> Family:
    """The model family that has all switches of this config."""
    for field, needed in _ALL_HAVE.items():
        value = getattr(config, field)
        if value != needed:
            raise ConfigError(
                f"{field} is {value!r}, which Llama's shape cannot express",
                hint=f"only models with {field} {needed!r} can be written this way",
            )
    if config.qk_norm and config.qkv_bias:
        raise ConfigError("qk_norm and qkv_bias are both on, which no format can express")
    if config.qk_norm:
        return "qwen3"
    if config.qkv_bias:
        return "qwen2"
    return "llama" if config.window is None else "mistral"


def to_llama_config(config: TransformerLMConfig) -> dict[str, Any]:
    """What goes into config.json."""
    family = _family_out(config)
    sizes = asdict(config) | {"d_ff": config.feed_forward_size}
    return {
        "architectures": [_CLASSES[family]],
        "model_type": family,
        **{theirs: sizes[ours] for ours, theirs in _LLAMA_SIZES.items()},
        "num_key_value_heads": config.num_kv_heads or config.num_heads,
        "head_dim": config.d_head,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _to_rope_scaling(config),
        "attention_bias": config.qkv_bias,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied_head,
        **_to_window(config, family),
        # Theirs default to 1 and 2, which are ordinary tokens here.
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _family_out(config: TransformerLMConfig) -> Family:
    family = family_of(config)
    if config.d_model % config.num_heads:  # which transformers refuses in a LlamaConfig
        return "mistral" if family == "llama" else family
    return "llama" if family == "qwen2" and config.window is None else family


def _to_rope_scaling(config: TransformerLMConfig) -> dict[str, Any] | None:
    if config.rope_scaling == "none":
        return None
    scaling = {"rope_type": config.rope_scaling, "factor": config.rope_factor}
    if config.rope_scaling == "llama3":
        scaling |= {
            "low_freq_factor": config.rope_low,
            "high_freq_factor": config.rope_high,
            _ORIGINAL: config.rope_original_context,
        }
    return scaling


def _to_window(config: TransformerLMConfig, family: Family) -> dict[str, Any]:
    if family == "mistral" or config.window is None:
        return {"sliding_window": config.window}
    kinds = ["sliding_attention"] * config.num_layers
    return {
        "use_sliding_window": True,
        "sliding_window": config.window,
        "max_window_layers": 0,
        "layer_types": kinds,
    }


def from_llama_config(theirs: dict[str, Any]) -> TransformerLMConfig:
    """Read our config from config.json, whose settings must all be supported."""
    family: Family = theirs["model_type"]
    sizes = {ours: theirs[name] for ours, name in _LLAMA_SIZES.items()}
    heads, d_model = sizes["num_heads"], sizes["d_model"]
    activation = theirs.get("hidden_act", "silu")
    _refuse(activation not in ("silu", "swish"), f"activation {activation!r}")
    has_bias = family == "qwen2" or bool(theirs.get("attention_bias"))
    _refuse(has_bias and family not in ("qwen2", "llama"), "biases in attention")
    _refuse(bool(theirs.get("mlp_bias")), "biases in the feed-forward part")
    _refuse(theirs.get("quantization_config") is not None, "quantised weights")
    kv_heads = theirs.get("num_key_value_heads") if family == "llama" else None
    head_size = theirs.get("head_dim") or (128 if family == "qwen3" else d_model // heads)
    return TransformerLMConfig(
        **sizes,
        num_kv_heads=kv_heads if family == "llama" else theirs["num_key_value_heads"],
        head_size=None if head_size * heads == d_model else head_size,
        norm_eps=float(theirs.get("rms_norm_eps", 1e-6)),
        tied_head=theirs.get("tie_word_embeddings", False),
        qkv_bias=has_bias,
        qk_norm=family == "qwen3",
        window=_from_window(theirs, family),
        **_from_rope(theirs),
    )


def _from_rope(theirs: dict[str, Any]) -> dict[str, Any]:
    """From the newer `rope_parameters`, which hold the base, too, or the older `rope_scaling`."""
    blocks = [theirs[key] for key in ("rope_scaling", "rope_parameters") if theirs.get(key)]
    found = [_read_rope(block, theirs) for block in blocks or [{}]]
    _refuse(found[0] != found[-1], "rope_parameters and rope_scaling that disagree")
    return found[0]


def _read_rope(rope: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    is_nested = any(isinstance(value, dict) for value in rope.values())
    _refuse(is_nested, "a rotation of its own for each type of layer")
    kind = rope.get("rope_type", rope.get("type", "default"))
    _refuse(kind not in ("default", "linear", "llama3"), f"rotary scaling {kind!r}")
    partial = rope.get("partial_rotary_factor", theirs.get("partial_rotary_factor", 1.0))
    _refuse(partial not in (None, 1.0), "rotation of a part of each head")
    found = {"rope_theta": float(rope.get("rope_theta") or theirs.get("rope_theta") or 10_000.0)}
    if kind == "default":
        return found
    found |= {"rope_scaling": kind, "rope_factor": float(rope["factor"])}
    if kind == "llama3":
        found |= {
            "rope_low": float(rope["low_freq_factor"]),
            "rope_high": float(rope["high_freq_factor"]),
            # Beside the block it wins, as in transformers.
            "rope_original_context": theirs.get(_ORIGINAL)
            or rope.get(_ORIGINAL, theirs["max_position_embeddings"]),
        }
    return found


def _from_window(theirs: dict[str, Any], family: Family) -> int | None:
    """Read the window, which all layers must share."""
    has_window = {"llama": False, "mistral": True}.get(family, theirs.get("use_sliding_window"))
    window: int | None = theirs.get("sliding_window", 4096) if has_window else None
    layers = theirs["num_hidden_layers"]
    first = theirs.get("max_window_layers", 28) if family.startswith("qwen") else 0
    kinds = theirs.get("layer_types")
    if not kinds:
        sliding = [window is not None and i >= first for i in range(min(layers, 10**4))]
        kinds = ["sliding_attention" if is_sliding else "full_attention" for is_sliding in sliding]
    _refuse(len(set(kinds)) > 1, "a sliding window in some layers only")
    _refuse(kinds[:1] == ["sliding_attention"] and window is None, "a sliding window of no size")
    is_lost = family == "mistral" and window is not None and kinds[:1] == ["full_attention"]
    _refuse(is_lost, "sliding_window and layer_types that disagree")
    usual = kinds[:1] in ([], ["full_attention"], ["sliding_attention"])
    _refuse(not usual, f"layers of the type {kinds[:1]}")
    return window if "sliding_attention" in kinds else None


def _refuse(found: bool, what: str) -> None:
    if found:
        raise FormatError(f"the model uses {what}, which TransformerLM does not have")


def to_gpt2_config(config: GPT2Config) -> dict[str, Any]:
    """What goes into config.json."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{theirs: getattr(config, ours) for ours, theirs in _GPT2_SIZES.items()},
        "n_inner": config.feed_forward_size,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.norm_eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "tie_word_embeddings": config.tied_head,
        # Theirs default to 50256, which smaller vocabularies do not have.
        "bos_token_id": None,
        "eos_token_id": None,
    }


def from_gpt2_config(theirs: dict[str, Any]) -> GPT2Config:
    """Read our config from config.json, whose settings must all be supported."""
    activation = theirs.get("activation_function", "gelu_new")
    if activation not in ("gelu_new", "gelu_pytorch_tanh"):
        raise FormatError(f"the model uses activation {activation!r}, GPT2 has tanh-GELU only")
    if theirs.get("scale_attn_by_inverse_layer_idx") or not theirs.get("scale_attn_weights", True):
        raise FormatError("the model scales its attention in a way that GPT2 does not have")
    return GPT2Config(
        **{ours: theirs[name] for ours, name in _GPT2_SIZES.items()},
        d_ff=theirs.get("n_inner"),
        tied_head=theirs.get("tie_word_embeddings", True),
        norm_eps=float(theirs.get("layer_norm_epsilon", 1e-5)),
        dropout=theirs.get("resid_pdrop", 0.1),
    )
