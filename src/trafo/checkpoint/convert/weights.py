"""Weights by another program's names -> a model of ours, after checking that they fit.

A table holds pairs (ours, theirs); `{i}` in both stands for the number of the layer, and `{qkv}` in
ours for q, k and v, where theirs is one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import cast

import torch
from torch import Tensor
from torch.nn import Module

from trafo.checkpoint.snapshot import check_weights, restore_weights
from trafo.errors import FormatError
from trafo.models import CausalLM, ModelConfig, build_model

NameTable = tuple[tuple[str, str], ...]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_LONGEST_CONTEXT = 2**21  # its rotary tables take a GB


def expand(table: NameTable, num_layers: int) -> dict[str, str]:
    """{ours: theirs} with the layers written out."""
    names = {}
    for ours, theirs in table:
        for i in range(num_layers) if "{i}" in ours else [0]:
            names[ours.replace("{i}", str(i))] = theirs.replace("{i}", str(i))
    return names


def with_biases(table: NameTable) -> NameTable:
    """The same table for weights and for biases."""
    return tuple(
        (f"{ours}.{part}", f"{theirs}.{part}")
        for ours, theirs in table
        for part in ("weight", "bias")
    )


def with_weights(table: NameTable) -> NameTable:
    """The same table for weights only."""
    return tuple((f"{ours}.weight", f"{theirs}.weight") for ours, theirs in table)


def join_qkv(state: Mapping[str, Tensor], fused: Mapping[str, str]) -> dict[str, Tensor]:
    """Their matrix of queries, keys and values from our three."""
    return {
        theirs: torch.cat([state[ours.replace("{qkv}", part)] for part in "qkv"])
        for ours, theirs in fused.items()
    }


def split_qkv(state: Mapping[str, Tensor], fused: Mapping[str, str]) -> dict[str, Tensor]:
    """Our three matrices from theirs."""
    return {
        ours.replace("{qkv}", part): rows
        for ours, theirs in fused.items()
        for part, rows in zip("qkv", state[theirs].chunk(3), strict=True)
    }


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


def fill(config: ModelConfig, weights: Mapping[str, Tensor]) -> CausalLM:
    """The model of this config with these weights, in the widest of their dtypes, ready for use."""
    strange = next((n for n, tensor in weights.items() if tensor.dtype not in _DTYPES), None)
    if strange is not None:
        raise FormatError(
            f"{strange} is stored as {str(weights[strange].dtype).removeprefix('torch.')}",
            hint="trafo reads float32, float16, bfloat16 and float64",
        )
    # An untrusted config must not make us allocate more memory than the weights take.
    shapes = skeleton(config)
    try:
        check_weights(dict(weights), shapes)
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
    """Files may hold a tied head a second time; other numbers there would be left out."""
    head = tensors.get("lm_head.weight")
    if head is not None and not torch.equal(head, tensors[table]):
        raise FormatError(
            f"config.json ties the head to the embeddings, but lm_head.weight is not {table}",
            hint="set tie_word_embeddings to false if the model has a head of its own",
        )
