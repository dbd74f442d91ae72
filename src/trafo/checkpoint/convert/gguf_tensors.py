"""Tensors by the names that llama.cpp knows: `llama` for TransformerLM, `gpt2` for GPT2.

llama.cpp rotates neighbouring pairs for `llama`, as we do, so the matrices go in as they are.
"""

import torch
from torch import Tensor

from trafo.checkpoint.convert.fill import fill, refuse_unknown, require_layers
from trafo.checkpoint.convert.llama import require_llama_shape
from trafo.checkpoint.convert.names import (
    NameTable,
    expand,
    first_missing,
    with_biases,
    with_weights,
)
from trafo.errors import FormatError
from trafo.models import GPT2, CausalLM, GPT2Config, TransformerLM, TransformerLMConfig

LLAMA_NAMES: NameTable = with_weights(
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
GPT2_NAMES: NameTable = (
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


def to_gguf_state(model: TransformerLM | GPT2) -> dict[str, Tensor]:
    state, layers = model.state_dict(), model.config.num_layers
    if isinstance(model, TransformerLM):
        require_llama_shape(model.config)
        names = expand(LLAMA_NAMES, layers)
        return {names[ours]: tensor for ours, tensor in state.items()}
    named = {theirs: state[o] for o, theirs in expand(GPT2_NAMES, layers).items() if o in state}
    for ours, theirs in expand(_FUSED, layers).items():
        named[theirs] = torch.cat([state[ours.replace("{qkv}", part)] for part in "qkv"])
    return named


def from_gguf_state(
    theirs: dict[str, Tensor], config: TransformerLMConfig | GPT2Config
) -> CausalLM:
    require_layers(config.num_layers, theirs)
    is_llama = isinstance(config, TransformerLMConfig)
    names = expand(LLAMA_NAMES if is_llama else GPT2_NAMES, config.num_layers)
    fused = {} if is_llama else expand(_FUSED, config.num_layers)
    if config.tied_head:
        del names["lm_head.weight"]
    missing = first_missing({**names, **fused}, theirs)
    if missing is not None:
        raise FormatError(f"no tensor {missing!r}", hint="the file is not complete")
    refuse_unknown(theirs, [*names.values(), *fused.values()])
    state = {ours: theirs[name] for ours, name in names.items()}
    for ours, name in fused.items():
        for part, rows in zip("qkv", theirs[name].chunk(3), strict=True):
            state[ours.replace("{qkv}", part)] = rows
    return fill(config, state)
