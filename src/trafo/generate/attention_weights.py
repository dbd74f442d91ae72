"""Attention weights of a text: how much each token attends to each other, by layer and head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trafo.errors import InputError
from trafo.models import CausalLM, record_attention
from trafo.models.base import evaluating
from trafo.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Attention:
    """`weights[layer, head, i, j]`: how much token i attends to token j; rows sum to 1."""

    tokens: list[str]
    """the text, token by token"""
    weights: Float[Tensor, "layer head seq seq"]


@torch.no_grad()
def attention(model: CausalLM, tokenizer: Tokenizer, text: str) -> Attention:
    """The attention weights of a model on a text."""
    begin = tokenizer.begin
    ids = [*([] if begin is None else [begin]), *tokenizer.encode(text)]
    if not ids:
        raise InputError("the text is empty", hint="give at least one character")
    with evaluating(model), record_attention(model) as recorded:
        model(torch.tensor([ids], device=model.head_weight.device))
    tokens = [tokenizer.vocab.get(i, b"").decode(errors="replace") for i in ids]
    return Attention(tokens, torch.cat([weights for (weights,) in recorded.values()]))
