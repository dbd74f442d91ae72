"""Tensors by the names that llama.cpp knows: `llama`, `qwen2`, `qwen3` for TransformerLM, `gpt2`.

Biases go out as `llama`, which has them beside any head size and rotary scaling; `qwen2` has not.

llama.cpp rotates neighbouring pairs for `llama`, as we do, so the matrices go in as they are; for
Qwen it rotates (k, k + d/2), as Hugging Face does. `rope_freqs` holds what the frequencies of the
rotation are divided by, if that is not one number.
"""

from dataclasses import replace

import torch
from torch import Tensor

from trafo.checkpoint.convert.llama import (
    drop_zero_biases,
    family_of,
    fill_renamed,
    renamed_state,
    tensor_names,
)
from trafo.checkpoint.convert.weights import (
    NameTable,
    expand,
    fill,
    join_qkv,
    require_layers,
    require_names,
    split_qkv,
    with_biases,
    with_weights,
)
from trafo.errors import FormatError, require
from trafo.models import GPT2, CausalLM, GPT2Config, TransformerLM, TransformerLMConfig
from trafo.nn.position import rotary_frequencies

_LLAMA_NAMES: NameTable = (
    *with_weights(
        (
            ("token_embeddings", "token_embd"),
            ("layers.{i}.ln1", "blk.{i}.attn_norm"),
            ("layers.{i}.attn.q_proj", "blk.{i}.attn_q"),
            ("layers.{i}.attn.k_proj", "blk.{i}.attn_k"),
            ("layers.{i}.attn.v_proj", "blk.{i}.attn_v"),
            ("layers.{i}.attn.output_proj", "blk.{i}.attn_output"),
            ("layers.{i}.attn.q_norm", "blk.{i}.attn_q_norm"),
            ("layers.{i}.attn.k_norm", "blk.{i}.attn_k_norm"),
            ("layers.{i}.ln2", "blk.{i}.ffn_norm"),
            ("layers.{i}.ffn.w1", "blk.{i}.ffn_gate"),
            ("layers.{i}.ffn.w2", "blk.{i}.ffn_down"),
            ("layers.{i}.ffn.w3", "blk.{i}.ffn_up"),
            ("ln_final", "output_norm"),
            ("lm_head", "output"),
        )
    ),
    ("layers.{i}.attn.q_proj.bias", "blk.{i}.attn_q.bias"),
    ("layers.{i}.attn.k_proj.bias", "blk.{i}.attn_k.bias"),
    ("layers.{i}.attn.v_proj.bias", "blk.{i}.attn_v.bias"),
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

ROPE_FREQS = "rope_freqs.weight"


def architecture_of(config: TransformerLMConfig | GPT2Config) -> str:
    """llama.cpp's name for a model of this config."""
    if isinstance(config, GPT2Config):
        return "gpt2"
    require(config.window is None, f"window is {config.window}, which llama.cpp would ignore")
    if family_of(config) != "qwen3":
        return "llama"
    what = "qk_norm is on with rope_scaling llama3, which no architecture of llama.cpp combines"
    require(config.rope_scaling != "llama3", what, "export a Hugging Face folder instead")
    return "qwen3"


def to_gguf_state(model: TransformerLM | GPT2) -> dict[str, Tensor]:
    """The model's tensors under llama.cpp's names."""
    kind = architecture_of(model.config)
    if isinstance(model, GPT2):
        names, fused = _gpt2_names(model.config)
        state = model.state_dict()
        return {theirs: state[ours] for ours, theirs in names.items()} | join_qkv(state, fused)
    tensors = renamed_state(model, _LLAMA_NAMES, halves=kind != "llama")
    is_scaled = model.config.rope_scaling == "llama3"
    return tensors | ({ROPE_FREQS: _divisors(model.config)} if is_scaled else {})


def from_gguf_state(
    theirs: dict[str, Tensor], config: TransformerLMConfig | GPT2Config, architecture: str
) -> CausalLM:
    """A model with these tensors, which have llama.cpp's names."""
    require_layers(config.num_layers, theirs)
    if isinstance(config, GPT2Config):
        names, fused = _gpt2_names(config)
        require_names(theirs, [*names.values(), *fused.values()])
        state = {ours: theirs[name] for ours, name in names.items()}
        return fill(config, state | split_qkv(theirs, fused))
    names = tensor_names(config, _LLAMA_NAMES)
    if ROPE_FREQS in theirs:
        config = _with_divisors(config, theirs[ROPE_FREQS])
        theirs = {name: tensor for name, tensor in theirs.items() if name != ROPE_FREQS}
    theirs = drop_zero_biases(theirs, ".attn_output.bias")
    require_names(theirs, names.values())
    return fill_renamed(config, theirs, names, halves=architecture != "llama")


def _gpt2_names(config: GPT2Config) -> tuple[dict[str, str], dict[str, str]]:
    """{ours: theirs}, of matrices that are one in both and of those that they have fused."""
    names = expand(_GPT2_NAMES, config.num_layers)
    if config.tied_head:
        del names["lm_head.weight"]
    return names, expand(_FUSED, config.num_layers)


def _divisors(config: TransformerLMConfig) -> Tensor:
    frequencies = rotary_frequencies(config.rope_theta, config.d_head)
    assert config.rotary_scaling is not None
    return (frequencies / config.rotary_scaling.apply(frequencies)).float()


def _with_divisors(config: TransformerLMConfig, divisors: Tensor) -> TransformerLMConfig:
    """Others' files hold the result of Llama 3.1's scaling without settings: try the usual ones."""
    factors = [config.rope_factor, divisors.max().item() if divisors.numel() else 0.0]
    for factor in factors if config.rope_scaling == "none" else []:
        if factor <= 0:
            continue
        scaled = replace(config, rope_scaling="llama3", rope_factor=factor)
        expected = _divisors(scaled)
        if expected.shape == divisors.shape and torch.allclose(expected, divisors, rtol=1e-4):
            return scaled
    raise FormatError(
        f"{ROPE_FREQS} holds a rotary scaling of its own",
        hint="trafo knows linear scaling and that of Llama 3.1",
    )
