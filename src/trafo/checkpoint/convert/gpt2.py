"""GPT2 <-> Hugging Face's GPT-2: theirs keeps q, k and v in one matrix, all matrices (in, out)."""

from typing import Any

from torch import Tensor

from trafo.checkpoint.convert.weights import (
    NameTable,
    expand,
    fill,
    join_qkv,
    refuse_second_head,
    require_layers,
    require_names,
    split_qkv,
    with_biases,
)
from trafo.errors import FormatError
from trafo.models import GPT2, CausalLM, GPT2Config

_SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "n_positions",
    "d_model": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
}
"""our names of the sizes, and theirs in config.json"""
_NAMES: NameTable = (
    ("token_embeddings.weight", "wte.weight"),
    ("position_embeddings.weight", "wpe.weight"),
    *with_biases(
        (
            ("layers.{i}.ln1", "h.{i}.ln_1"),
            ("layers.{i}.ln2", "h.{i}.ln_2"),
            ("layers.{i}.attn.output_proj", "h.{i}.attn.c_proj"),
            ("layers.{i}.ffn.w1", "h.{i}.mlp.c_fc"),
            ("layers.{i}.ffn.w2", "h.{i}.mlp.c_proj"),
            ("ln_final", "ln_f"),
        )
    ),
)
_FUSED = with_biases((("layers.{i}.attn.{qkv}_proj", "h.{i}.attn.c_attn"),))


def to_gpt2_config(config: GPT2Config) -> dict[str, Any]:
    """What goes into config.json."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{theirs: getattr(config, ours) for ours, theirs in _SIZES.items()},
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
    """Our config from config.json; unsupported settings are an error."""
    activation = theirs.get("activation_function", "gelu_new")
    if activation not in ("gelu_new", "gelu_pytorch_tanh"):
        raise FormatError(f"the model uses activation {activation!r}, GPT2 has tanh-GELU only")
    if theirs.get("scale_attn_by_inverse_layer_idx") or not theirs.get("scale_attn_weights", True):
        raise FormatError("the model scales its attention in a way that GPT2 does not have")
    return GPT2Config(
        **{ours: theirs[name] for ours, name in _SIZES.items()},
        d_ff=theirs.get("n_inner"),
        tied_head=theirs.get("tie_word_embeddings", True),
        norm_eps=float(theirs.get("layer_norm_epsilon", 1e-5)),
        dropout=theirs.get("resid_pdrop", 0.1),
    )


def to_gpt2_state(model: GPT2) -> dict[str, Tensor]:
    """The model's tensors as Hugging Face names and shapes them."""
    ours, layers = model.state_dict(), model.config.num_layers
    named = {name: ours[our_name] for our_name, name in expand(_NAMES, layers).items()}
    named |= join_qkv(ours, expand(_FUSED, layers))
    state = {f"transformer.{name}": _turned(name, tensor) for name, tensor in named.items()}
    head = {} if model.config.tied_head else {"lm_head.weight": ours["lm_head.weight"]}
    return state | head


def from_gpt2_state(theirs: dict[str, Tensor], config: GPT2Config) -> CausalLM:
    """A model with these weights; older files leave out the prefix `transformer.`."""
    theirs = {name.removeprefix("transformer."): tensor for name, tensor in theirs.items()}
    require_layers(config.num_layers, theirs)
    names, fused = expand(_NAMES, config.num_layers), expand(_FUSED, config.num_layers)
    if not config.tied_head:
        names["lm_head.weight"] = "lm_head.weight"
    # Old files hold the causal masks, too; a tied head may be there a second time.
    harmless = (".attn.bias", ".attn.masked_bias", *(["lm_head.weight"] * config.tied_head))
    require_names(theirs, [*names.values(), *fused.values()], harmless)
    if config.tied_head:
        refuse_second_head(theirs, "wte.weight")
    theirs = {name: _turned(name, tensor) for name, tensor in theirs.items()}
    state = {ours: theirs[name] for ours, name in names.items()}
    return fill(config, state | split_qkv(theirs, fused))


def _turned(name: str, tensor: Tensor) -> Tensor:
    """Their matrices (in, out) to ours (out, in), which is the same step both ways."""
    is_turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    return tensor.T.contiguous() if is_turned else tensor
