"""Tensors by other programs' names <-> a model of ours, after checking that they fit.

One table for each of our models holds the names in each format. Three things may differ beside the
name: a format may keep q, k and v in one matrix, store matrices as (in, out), and rotate the pairs
(k, k + d/2) of a head, where we rotate neighbours (2k, 2k+1), as the RoPE paper does. Moving the
rows of the query and key matrices makes both rotations compute the same scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from trafo.checkpoint.snapshot import check_weights, restore_weights
from trafo.errors import FormatError
from trafo.models import (
    GPT2,
    CausalLM,
    GPT2Config,
    ModelConfig,
    TransformerLM,
    TransformerLMConfig,
    build_model,
)

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_LONGEST_CONTEXT = 2**21  # its rotary tables take a GB

_TRANSFORMER_LM = {  # ours: Hugging Face, GGUF
    "token_embeddings": ("model.embed_tokens", "token_embd"),
    "layers.{i}.ln1": ("model.layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    "layers.{i}.attn.q_proj": ("model.layers.{i}.self_attn.q_proj", "blk.{i}.attn_q"),
    "layers.{i}.attn.k_proj": ("model.layers.{i}.self_attn.k_proj", "blk.{i}.attn_k"),
    "layers.{i}.attn.v_proj": ("model.layers.{i}.self_attn.v_proj", "blk.{i}.attn_v"),
    "layers.{i}.attn.output_proj": ("model.layers.{i}.self_attn.o_proj", "blk.{i}.attn_output"),
    "layers.{i}.attn.q_norm": ("model.layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm"),
    "layers.{i}.attn.k_norm": ("model.layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm"),
    "layers.{i}.ln2": ("model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    "layers.{i}.ffn.w1": ("model.layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate"),
    "layers.{i}.ffn.w2": ("model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down"),
    "layers.{i}.ffn.w3": ("model.layers.{i}.mlp.up_proj", "blk.{i}.ffn_up"),
    "ln_final": ("model.norm", "output_norm"),
    "lm_head": ("lm_head", "output"),
}
_GPT2 = {  # ours: Hugging Face, GGUF; both keep q, k and v in one matrix
    "token_embeddings": ("transformer.wte", "token_embd"),
    "position_embeddings": ("transformer.wpe", "position_embd"),
    "layers.{i}.ln1": ("transformer.h.{i}.ln_1", "blk.{i}.attn_norm"),
    "layers.{i}.attn.q_proj": ("transformer.h.{i}.attn.c_attn", "blk.{i}.attn_qkv"),
    "layers.{i}.attn.k_proj": ("transformer.h.{i}.attn.c_attn", "blk.{i}.attn_qkv"),
    "layers.{i}.attn.v_proj": ("transformer.h.{i}.attn.c_attn", "blk.{i}.attn_qkv"),
    "layers.{i}.attn.output_proj": ("transformer.h.{i}.attn.c_proj", "blk.{i}.attn_output"),
    "layers.{i}.ln2": ("transformer.h.{i}.ln_2", "blk.{i}.ffn_norm"),
    "layers.{i}.ffn.w1": ("transformer.h.{i}.mlp.c_fc", "blk.{i}.ffn_up"),
    "layers.{i}.ffn.w2": ("transformer.h.{i}.mlp.c_proj", "blk.{i}.ffn_down"),
    "ln_final": ("transformer.ln_f", "output_norm"),
    "lm_head": ("lm_head", "output"),
}


@dataclass(frozen=True, kw_only=True)
class TensorTable:
    """How a format names and stores the tensors of a model."""

    names: Mapping[str, str]
    """theirs of each of ours, without the last part, `weight` or `bias`; `{i}` is the layer"""
    is_fused: bool = False
    """q, k and v are one matrix"""
    has_halves: bool = False
    """rotary pairs are (k, k + d/2), not neighbours"""
    transposed: tuple[str, ...] = ()
    """ends of the names of matrices that are (in, out)"""

    def name(self, ours: str) -> str:
        """Their name of a tensor of ours."""
        layer = re.match(r"layers\.(\d+)\.", ours)
        index = layer[1] if layer else ""
        part, _, kind = ours.replace(f"layers.{index}.", "layers.{i}.", 1).rpartition(".")
        return f"{self.names[part]}.{kind}".replace("{i}", index)

    def _turn(self, name: str, tensor: Tensor) -> Tensor:
        """(in, out) to (out, in), which is the same step both ways."""
        return tensor.T.contiguous() if name.endswith(self.transposed) else tensor

    def export_state(self, model: TransformerLM | GPT2) -> dict[str, Tensor]:
        """The model's tensors as the format names and stores them."""
        parts: dict[str, list[Tensor]] = {}
        for ours, tensor in model.state_dict().items():
            if self.has_halves and _is_rotated(ours):
                tensor = _to_halves(tensor, model.config.d_head)
            parts.setdefault(self.name(ours), []).append(tensor)
        return {
            name: self._turn(name, torch.cat(found) if len(found) > 1 else found[0])
            for name, found in parts.items()
        }

    def import_model(
        self,
        config: TransformerLMConfig | GPT2Config,
        tensors: Mapping[str, Tensor],
        harmless: tuple[str, ...] = (),
    ) -> CausalLM:
        """A model with these tensors, which must be all that it has, and no others."""
        require_layers(config.num_layers, tensors)
        shapes = skeleton(config)
        names = {ours: self.name(ours) for ours in shapes.state_dict()}
        require_names(tensors, names.values(), harmless)
        state = {}
        for ours, name in names.items():
            tensor = self._turn(name, tensors[name])
            if self.is_fused and (part := re.search(r"attn\.([qkv])_proj", ours)):
                tensor = _third(tensor, "qkv".index(part[1]))
            if self.has_halves and _is_rotated(ours):
                tensor = _to_neighbours(tensor, config.d_head)
            state[ours] = tensor
        return fill(config, state, shapes)


_MATRICES = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
HF_TRANSFORMER_LM, GGUF_LLAMA = (
    TensorTable(names={ours: theirs[column] for ours, theirs in _TRANSFORMER_LM.items()})
    for column in range(2)
)
HF_TRANSFORMER_LM = replace(HF_TRANSFORMER_LM, has_halves=True)
GGUF_QWEN = replace(GGUF_LLAMA, has_halves=True)
HF_GPT2, GGUF_GPT2 = (
    TensorTable(names={ours: theirs[column] for ours, theirs in _GPT2.items()}, is_fused=True)
    for column in range(2)
)
HF_GPT2 = replace(HF_GPT2, transposed=_MATRICES)


def _is_rotated(ours: str) -> bool:
    """Whether the rows of this tensor of ours are in the order of rotary pairs."""
    return ours.rpartition(".")[0].endswith(("q_proj", "k_proj", "q_norm", "k_norm"))


def _to_halves(weight: Float[Tensor, "rows ..."], d_head: int) -> Float[Tensor, "rows ..."]:
    """Neighbouring pairs (2k, 2k+1) of each head become (k, k + d/2)."""
    return _reordered(weight, "(heads pair two) ... -> (heads two pair) ...", d_head)


def _to_neighbours(weight: Float[Tensor, "rows ..."], d_head: int) -> Float[Tensor, "rows ..."]:
    """(k, k + d/2) of each head become neighbouring pairs (2k, 2k+1)."""
    return _reordered(weight, "(heads two pair) ... -> (heads pair two) ...", d_head)


def _reordered(weight: Tensor, order: str, d_head: int) -> Tensor:
    if weight.ndim == 0 or weight.shape[0] % d_head:
        raise FormatError(f"{tuple(weight.shape)} does not split into heads of {d_head}")
    return rearrange(weight, order, two=2, pair=d_head // 2).contiguous()


def _third(fused: Tensor, index: int) -> Tensor:
    """The rows of q, k or v."""
    if fused.ndim == 0 or len(fused) % 3:
        raise FormatError(f"{tuple(fused.shape)} does not split into queries, keys and values")
    return fused.chunk(3)[index]


def drop_zero_biases(tensors: Mapping[str, Tensor], suffix: str) -> dict[str, Tensor]:
    """Without the biases on the output of attention, which Llama has and which must be zero."""
    output = {name for name in tensors if name.endswith(suffix)}
    if any(tensors[name].any() for name in output):
        what = "the model uses biases on the output of attention, which TransformerLM does not have"
        raise FormatError(what)
    return {name: tensor for name, tensor in tensors.items() if name not in output}


def require_layers(num_layers: int, tensors: Mapping[str, object]) -> None:
    """Before names are written out for each layer: a config may say anything."""
    if not isinstance(num_layers, int) or num_layers > len(tensors):
        raise FormatError(f"{num_layers} layers, but only {len(tensors)} tensors")


def require_names(
    tensors: Mapping[str, object], known: Iterable[str], harmless: tuple[str, ...] = ()
) -> None:
    """Refuse a file without one of these tensors, and one with others than these.

    A tensor that we would leave out changes what the model computes, unless its name ends in one
    of those that are `harmless`.
    """
    known = list(known)
    if missing := [name for name in known if name not in tensors]:
        hint = "the weights are incomplete, or do not fit the config"
        raise FormatError(f"no tensor {missing[0]!r}", hint=hint)
    left = sorted(name for name in set(tensors) - set(known) if not name.endswith(harmless))
    if left:
        raise FormatError(
            f"trafo does not know the tensor {left[0]!r}",
            hint=f"{len(left)} such tensors; the config does not account for them",
        )


def fill(
    config: ModelConfig, weights: Mapping[str, Tensor], shapes: Module | None = None
) -> CausalLM:
    """The model of this config with these weights, in the widest of their dtypes, ready for use."""
    strange = next((n for n, tensor in weights.items() if tensor.dtype not in _DTYPES), None)
    if strange is not None:
        raise FormatError(
            f"{strange} is stored as {str(weights[strange].dtype).removeprefix('torch.')}",
            hint="trafo reads float32, float16, bfloat16 and float64",
        )
    # An untrusted config must not make us allocate more memory than the weights take.
    try:
        check_weights(dict(weights), shapes or skeleton(config))
    except FormatError as error:
        hint = "the sizes in the config and the weights disagree"
        raise FormatError(error.what, hint=hint) from None
    model = build_model(config, dtype=widest_dtype(weights))
    restore_weights(dict(weights), model)
    return cast(CausalLM, model.eval())


def widest_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype that holds all of them exactly: files have norms in float32 beside bfloat16."""
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))


def skeleton(config: ModelConfig) -> Module:
    """The shapes of all tensors, on the meta device."""
    context = config.context_length
    if context is not None and (not isinstance(context, int) or context > _LONGEST_CONTEXT):
        raise FormatError(f"a context of {context} tokens", hint=f"at most {_LONGEST_CONTEXT:,}")
    try:
        return build_model(config, device="meta")
    except (RuntimeError, TypeError, OverflowError) as error:
        raise FormatError(f"the sizes do not make a model: {str(error).splitlines()[0]}") from None


def refuse_second_head(tensors: Mapping[str, Tensor], table: str) -> None:
    """Refuse a second copy of a tied head that holds other numbers."""
    head = tensors.get("lm_head.weight")
    if head is not None and not torch.equal(head, tensors[table]):
        raise FormatError(
            f"config.json ties the head to the embeddings, but lm_head.weight is not {table}",
            hint="set tie_word_embeddings to false if the model has a head of its own",
        )
