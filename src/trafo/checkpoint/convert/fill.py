"""Weights from a file into a model, after checking that they fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import Module

from trafo.checkpoint.snapshot import check_weights, restore_weights
from trafo.errors import FormatError
from trafo.models import CausalLM, ModelConfig, build_model

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_LONGEST_CONTEXT = 2**21  # its rotary tables take a GB


def fill(config: ModelConfig, weights: Mapping[str, Tensor]) -> CausalLM:
    """The model of this config with these weights, in their dtype, ready to be used."""
    strange = next((n for n, tensor in weights.items() if tensor.dtype not in _DTYPES), None)
    if strange is not None:
        raise FormatError(
            f"{strange} is stored as {str(weights[strange].dtype).removeprefix('torch.')}",
            hint="trafo reads float32, float16, bfloat16 and float64",
        )
    # An untrusted config must not make us allocate more memory than the weights take.
    skeleton = _skeleton(config)
    try:
        check_weights(dict(weights), skeleton)
    except FormatError as error:
        hint = "the sizes in the config and the weights disagree"
        raise FormatError(error.what, hint=hint) from None
    dtype = next(iter(weights.values())).dtype
    model = build_model(config, dtype=torch.float32 if dtype == torch.float64 else dtype)
    restore_weights(dict(weights), model)
    return cast(CausalLM, model.eval())


def _skeleton(config: ModelConfig) -> Module:
    """The shapes of all tensors, on the meta device."""
    context = getattr(config, "context_length", 1)
    if not isinstance(context, int) or context > _LONGEST_CONTEXT:
        raise FormatError(f"a context of {context} tokens", hint=f"at most {_LONGEST_CONTEXT:,}")
    try:
        return build_model(config, device="meta")
    except (RuntimeError, TypeError, OverflowError) as error:
        raise FormatError(f"the sizes do not make a model: {str(error).splitlines()[0]}") from None


def require_layers(num_layers: int, tensors: Mapping[str, object]) -> None:
    """Before names are written out for each layer: a config may say anything."""
    if not isinstance(num_layers, int) or num_layers > len(tensors):
        raise FormatError(f"{num_layers} layers, but only {len(tensors)} tensors")


def refuse_second_head(tensors: Mapping[str, Tensor], table: str) -> None:
    """Files may hold a tied head a second time; other numbers there would be left out."""
    head = tensors.get("lm_head.weight")
    if head is not None and not torch.equal(head, tensors[table]):
        raise FormatError(
            f"config.json ties the head to the embeddings, but lm_head.weight is not {table}",
            hint="set tie_word_embeddings to false if the model has a head of its own",
        )


def refuse_unknown(
    tensors: Mapping[str, object], known: Iterable[str], harmless: tuple[str, ...] = ()
) -> None:
    """A tensor that we would leave out changes what the model computes."""
    left = sorted(name for name in set(tensors) - set(known) if not name.endswith(harmless))
    if left:
        raise FormatError(
            f"trafo does not know the tensor {left[0]!r}",
            hint=f"{len(left)} such tensors; the config does not account for them",
        )
