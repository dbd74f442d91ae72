"""GPT2 <-> Hugging Face's GPT-2: theirs keeps q, k and v in one matrix, all matrices (in, out)."""

from typing import Any

import torch
from torch import Tensor

from trafo.checkpoint.convert.fill import fill, refuse_second_head, refuse_unknown, require_layers
from trafo.checkpoint.convert.names import NameTable, expand, first_missing, with_biases
from trafo.errors import FormatError
from trafo.models import GPT2, CausalLM, GPT2Config

NAMES: NameTable = (
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
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
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
        vocab_size=theirs["vocab_size"],
        context_length=theirs["n_positions"],
        d_model=theirs["n_embd"],
        num_layers=theirs["n_layer"],
        num_heads=theirs["n_head"],
        d_ff=theirs.get("n_inner"),
        tied_head=theirs.get("tie_word_embeddings", True),
        norm_eps=float(theirs.get("layer_norm_epsilon", 1e-5)),
        dropout=theirs.get("resid_pdrop", 0.1),
    )


def to_gpt2_state(model: GPT2) -> dict[str, Tensor]:
    """The model's tensors as Hugging Face names and shapes them."""
    ours, layers = model.state_dict(), model.config.num_layers
    state = {
        f"transformer.{name}": _turned(name, ours[our_name])
        for our_name, name in expand(NAMES, layers).items()
    }
    for our_name, name in expand(_FUSED, layers).items():
        fused = torch.cat([ours[our_name.replace("{qkv}", part)] for part in "qkv"])
        state[f"transformer.{name}"] = _turned(name, fused)
    if not model.config.tied_head:
        state["lm_head.weight"] = ours["lm_head.weight"]
    return state


def from_gpt2_state(theirs: dict[str, Tensor], config: GPT2Config) -> CausalLM:
    """A model with these weights; older files leave out the prefix `transformer.`."""
    theirs = {name.removeprefix("transformer."): tensor for name, tensor in theirs.items()}
    require_layers(config.num_layers, theirs)
    plain, fused = expand(NAMES, config.num_layers), expand(_FUSED, config.num_layers)
    if not config.tied_head:
        plain["lm_head.weight"] = "lm_head.weight"
    missing = first_missing({**plain, **fused}, theirs)
    if missing is not None:
        raise FormatError(f"no tensor {missing!r}", hint="the weights do not fit config.json")
    # Old files hold the causal masks, too; a tied head may be there a second time.
    harmless = (".attn.bias", ".attn.masked_bias", *(["lm_head.weight"] * config.tied_head))
    refuse_unknown(theirs, [*plain.values(), *fused.values()], harmless)
    if config.tied_head:
        refuse_second_head(theirs, "wte.weight")
    state = {ours: _turned(name, theirs[name]) for ours, name in plain.items()}
    for ours, name in fused.items():
        for part, rows in zip("qkv", _turned(name, theirs[name]).chunk(3), strict=True):
            state[ours.replace("{qkv}", part)] = rows
    return fill(config, state)


def _turned(name: str, tensor: Tensor) -> Tensor:
    """Their matrices (in, out) to ours (out, in), which is the same step both ways."""
    is_turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    return tensor.T.contiguous() if is_turned else tensor
