"""Tensors by the names that llama.cpp knows: `llama`, `qwen2`, `qwen3` for TransformerLM, `gpt2`.

llama.cpp rotates neighbouring pairs for `llama`, as we do, so the matrices go in as they are; for
Qwen it rotates (k, k + d/2), as Hugging Face does. `rope_freqs` holds what the frequencies of the
rotation are divided by, if that is not one number.
"""

from dataclasses import replace

import torch
from torch import Tensor

from trafo.checkpoint.convert.fill import fill, refuse_unknown, require_layers
from trafo.checkpoint.convert.llama import (
    family_of,
    is_rotated,
    tensor_names,
    to_halves,
    to_pairs,
)
from trafo.checkpoint.convert.names import (
    NameTable,
    expand,
    first_missing,
    with_biases,
    with_weights,
)
from trafo.errors import FormatError, require
from trafo.models import GPT2, CausalLM, GPT2Config, TransformerLM, TransformerLMConfig
from trafo.nn.rotary import rotary_frequencies

_LLAMA_NAMES: NameTable = with_weights(
    (
        ("token_embeddings", "token_embd"),
        ("layers.{i}.ln1", "blk.{i}.attn_norm"),
        ("layers.{i}.attn.q_proj", "blk.{i}.attn_q"),
        ("layers.{i}.attn.k_proj", "blk.{i}.attn_k"),
        ("layers.{i}.attn.v_proj", "blk.{i}.attn_v"),
        ("layers.{i}.attn.output_proj", "blk.{i}.attn_output"),
        ("layers.{i}.ln2", "blk.{i}.ffn_norm"),
        ("layers.{i}.ffn.w1", "blk.{i}.ffn_gate"),
        ("layers.{i}.ffn.w2", "blk.{i}.ffn_down"),
        ("layers.{i}.ffn.w3", "blk.{i}.ffn_up"),
        ("ln_final", "output_norm"),
        ("lm_head", "output"),
    )
)
_GPT2_NAMES: NameTable = (
    *with_weights(
        (
            ("token_embeddings", "token_embd"),
            ("position_embeddings", "position_embd"),
            ("lm_head", "output"),
        )
    ),
    *with_biases(
        (
            ("layers.{i}.ln1", "blk.{i}.attn_norm"),
            ("layers.{i}.attn.output_proj", "blk.{i}.attn_output"),
            ("layers.{i}.ln2", "blk.{i}.ffn_norm"),
            ("layers.{i}.ffn.w1", "blk.{i}.ffn_up"),
            ("layers.{i}.ffn.w2", "blk.{i}.ffn_down"),
            ("ln_final", "output_norm"),
        )
    ),
)
_FUSED = with_biases((("layers.{i}.attn.{qkv}_proj", "blk.{i}.attn_qkv"),))


_BIAS_NAMES: NameTable = tuple(
    (f"layers.{{i}}.attn.{part}_proj.bias", f"blk.{{i}}.attn_{part}.bias") for part in "qkv"
)
_NORM_NAMES: NameTable = tuple(
    (f"layers.{{i}}.attn.{part}_norm.weight", f"blk.{{i}}.attn_{part}_norm.weight") for part in "qk"
)
ROPE_FREQS = "rope_freqs.weight"


def architecture_of(config: TransformerLMConfig | GPT2Config) -> str:
    """llama.cpp's name for a model of this config."""
    if isinstance(config, GPT2Config):
        return "gpt2"
    require(config.window is None, f"window is {config.window}, which llama.cpp would ignore")
    return family_of(config)


def to_gguf_state(model: TransformerLM | GPT2) -> dict[str, Tensor]:
    """The model's tensors under llama.cpp's names."""
    state, config = model.state_dict(), model.config
    kind = architecture_of(config)
    if isinstance(config, TransformerLMConfig):
        names = tensor_names(config, _LLAMA_NAMES, _BIAS_NAMES, _NORM_NAMES)
        turns = kind != "llama"
        named = {
            names[ours]: to_halves(t, config.d_head) if turns and is_rotated(ours) else t
            for ours, t in state.items()
        }
        return named | ({ROPE_FREQS: _divisors(config)} if config.rope_scaling == "llama3" else {})
    layers = config.num_layers
    named = {theirs: state[o] for o, theirs in expand(_GPT2_NAMES, layers).items() if o in state}
    for ours, theirs in expand(_FUSED, layers).items():
        named[theirs] = torch.cat([state[ours.replace("{qkv}", part)] for part in "qkv"])
    return named


def from_gguf_state(
    theirs: dict[str, Tensor], config: TransformerLMConfig | GPT2Config
) -> CausalLM:
    """A model with these tensors, which have llama.cpp's names."""
    require_layers(config.num_layers, theirs)
    if isinstance(config, TransformerLMConfig):
        return _from_llama(theirs, config)
    names, fused = expand(_GPT2_NAMES, config.num_layers), expand(_FUSED, config.num_layers)
    if config.tied_head:
        del names["lm_head.weight"]
    _check_names(theirs, {**names, **fused})
    state = {ours: theirs[name] for ours, name in names.items()}
    for ours, name in fused.items():
        for part, rows in zip("qkv", theirs[name].chunk(3), strict=True):
            state[ours.replace("{qkv}", part)] = rows
    return fill(config, state)


def _from_llama(theirs: dict[str, Tensor], config: TransformerLMConfig) -> CausalLM:
    names = tensor_names(config, _LLAMA_NAMES, _BIAS_NAMES, _NORM_NAMES)
    if ROPE_FREQS in theirs:
        config = _with_divisors(config, theirs[ROPE_FREQS])
        theirs = {name: tensor for name, tensor in theirs.items() if name != ROPE_FREQS}
    _check_names(theirs, names)
    turns = config.qkv_bias or config.qk_norm
    state = {
        ours: to_pairs(theirs[name], config.d_head) if turns and is_rotated(ours) else theirs[name]
        for ours, name in names.items()
    }
    return fill(config, state)


def _check_names(theirs: dict[str, Tensor], names: dict[str, str]) -> None:
    missing = first_missing(names, theirs)
    if missing is not None:
        raise FormatError(f"no tensor {missing!r}", hint="the file is not complete")
    refuse_unknown(theirs, names.values())


def _divisors(config: TransformerLMConfig) -> Tensor:
    frequencies = rotary_frequencies(config.rope_theta, config.d_head)
    assert config.rotary_scaling is not None
    return (frequencies / config.rotary_scaling.apply(frequencies)).float()


def _with_divisors(config: TransformerLMConfig, divisors: Tensor) -> TransformerLMConfig:
    """The file holds the result of Llama 3.1's scaling, not its settings: try the usual ones."""
    factor = divisors.max().item() if divisors.numel() else 0.0
    if factor > 0:
        scaled = replace(config, rope_scaling="llama3", rope_factor=factor)
        expected = _divisors(scaled)
        if expected.shape == divisors.shape and torch.allclose(expected, divisors, rtol=1e-4):
            return scaled
    raise FormatError(
        f"{ROPE_FREQS} holds a rotary scaling of its own",
        hint="trafo knows linear scaling and that of Llama 3.1",
    )
