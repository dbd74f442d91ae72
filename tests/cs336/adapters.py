"""The functions of the public CS336 assignment-1 test suite, by their names and signatures.

Glue only: each builds the part of trafo that it names, gives it the weights, and runs it. Put the
suite's tests beside this file and run them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo import nn
from trafo.checkpoint.snapshot import load_checkpoint, save_checkpoint
from trafo.data.windows import get_batch
from trafo.models import TransformerBlock, TransformerLM
from trafo.optim import AdamW, clip_gradients, cross_entropy, warmup_cosine
from trafo.tokenizer.tokenizer import Tokenizer

# Layers


def run_linear(
    d_in: int,
    d_out: int,
    weights: Float[Tensor, " d_out d_in"],
    in_features: Float[Tensor, " ... d_in"],
) -> Float[Tensor, " ... d_out"]:
    return _with(nn.Linear(d_in, d_out), weight=weights)(in_features)


def run_embedding(
    vocab_size: int,
    d_model: int,
    weights: Float[Tensor, " vocab_size d_model"],
    token_ids: Int[Tensor, " ..."],
) -> Float[Tensor, " ... d_model"]:
    return _with(nn.Embedding(vocab_size, d_model), weight=weights)(token_ids)


def run_rmsnorm(
    d_model: int,
    eps: float,
    weights: Float[Tensor, " d_model"],
    in_features: Float[Tensor, " ... d_model"],
) -> Float[Tensor, " ... d_model"]:
    return _with(nn.RMSNorm(d_model, eps), weight=weights)(in_features)


def run_silu(in_features: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
    return nn.silu(in_features)


def run_swiglu(
    d_model: int,
    d_ff: int,
    w1_weight: Float[Tensor, " d_ff d_model"],
    w2_weight: Float[Tensor, " d_model d_ff"],
    w3_weight: Float[Tensor, " d_ff d_model"],
    in_features: Float[Tensor, " ... d_model"],
) -> Float[Tensor, " ... d_model"]:
    weights = {"w1.weight": w1_weight, "w2.weight": w2_weight, "w3.weight": w3_weight}
    return _with(nn.SwiGLU(d_model, d_ff), **weights)(in_features)


def run_softmax(in_features: Float[Tensor, " ..."], dim: int) -> Float[Tensor, " ..."]:
    return nn.softmax(in_features, dim)


# Attention


def run_scaled_dot_product_attention(
    Q: Float[Tensor, " ... queries d_k"],  # noqa: N803
    K: Float[Tensor, " ... keys d_k"],  # noqa: N803
    V: Float[Tensor, " ... keys d_v"],  # noqa: N803
    mask: Bool[Tensor, " ... queries keys"] | None = None,
) -> Float[Tensor, " ... queries d_v"]:
    return nn.scaled_dot_product_attention(Q, K, V, mask)


def run_rope(
    d_k: int,
    theta: float,
    max_seq_len: int,
    in_query_or_key: Float[Tensor, " ... sequence_length d_k"],
    token_positions: Int[Tensor, " ... sequence_length"],
) -> Float[Tensor, " ... sequence_length d_k"]:
    rope = nn.RotaryPositionalEmbedding(theta, d_k, max_seq_len)
    return rope(in_query_or_key, token_positions)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Float[Tensor, " d_model d_in"],
    k_proj_weight: Float[Tensor, " d_model d_in"],
    v_proj_weight: Float[Tensor, " d_model d_in"],
    o_proj_weight: Float[Tensor, " d_model d_v"],
    in_features: Float[Tensor, " ... sequence_length d_in"],
) -> Float[Tensor, " ... sequence_length d_model"]:
    layer = nn.MultiHeadSelfAttention(d_model, num_heads)
    weights = _projections(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return _with(layer, **weights)(in_features)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Float[Tensor, " d_model d_in"],
    k_proj_weight: Float[Tensor, " d_model d_in"],
    v_proj_weight: Float[Tensor, " d_model d_in"],
    o_proj_weight: Float[Tensor, " d_model d_v"],
    in_features: Float[Tensor, " ... sequence_length d_in"],
    token_positions: Int[Tensor, " ... sequence_length"] | None = None,
) -> Float[Tensor, " ... sequence_length d_model"]:
    rope = nn.RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)
    layer = nn.MultiHeadSelfAttention(d_model, num_heads, rope=rope)
    weights = _projections(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return _with(layer, **weights)(in_features, token_positions)


# Models


def run_transformer_block(
    d_model: int,
    num_heads: int,
    d_ff: int,
    max_seq_len: int,
    theta: float,
    weights: dict[str, Tensor],
    in_features: Float[Tensor, " batch sequence_length d_model"],
) -> Float[Tensor, " batch sequence_length d_model"]:
    rope = nn.RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)
    block = TransformerBlock(
        nn.MultiHeadSelfAttention(d_model, num_heads, rope=rope),
        nn.SwiGLU(d_model, d_ff),
        nn.RMSNorm(d_model),
        nn.RMSNorm(d_model),
    )
    return _with(block, **weights)(in_features)


def run_transformer_lm(
    vocab_size: int,
    context_length: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    d_ff: int,
    rope_theta: float,
    weights: dict[str, Tensor],
    in_indices: Int[Tensor, " batch_size sequence_length"],
) -> Float[Tensor, " batch_size sequence_length vocab_size"]:
    sizes = (vocab_size, context_length, d_model, num_layers, num_heads, d_ff, rope_theta)
    return _with(TransformerLM(*sizes), **weights)(in_indices)


# Training


def run_cross_entropy(
    inputs: Float[Tensor, " batch_size vocab_size"], targets: Int[Tensor, " batch_size"]
) -> Float[Tensor, ""]:
    return cross_entropy(inputs, targets)


def run_gradient_clipping(parameters: Iterable[torch.nn.Parameter], max_l2_norm: float) -> None:
    clip_gradients(parameters, max_l2_norm)


def get_adamw_cls() -> type[AdamW]:
    return AdamW


def run_get_lr_cosine_schedule(
    it: int,
    max_learning_rate: float,
    min_learning_rate: float,
    warmup_iters: int,
    cosine_cycle_iters: int,
) -> float:
    return warmup_cosine(it, max_learning_rate, min_learning_rate, warmup_iters, cosine_cycle_iters)


def run_get_batch(
    dataset: npt.NDArray[np.integer[Any]], batch_size: int, context_length: int, device: str
) -> tuple[Tensor, Tensor]:
    return get_batch(dataset, batch_size, context_length, device)


def run_save_checkpoint(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    iteration: int,
    out: str | os.PathLike[str] | BinaryIO | IO[bytes],
) -> None:
    save_checkpoint(model, optimizer, iteration, _path_or_file(out))


def run_load_checkpoint(
    src: str | os.PathLike[str] | BinaryIO | IO[bytes],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
) -> int:
    return load_checkpoint(_path_or_file(src), model, optimizer)


# Tokenizer


def get_tokenizer(
    vocab: dict[int, bytes],
    merges: list[tuple[bytes, bytes]],
    special_tokens: list[str] | None = None,
) -> Tokenizer:
    return Tokenizer(vocab, merges, special_tokens).prepare()  # the suite limits memory afterwards


def run_train_bpe(
    input_path: str | os.PathLike[str], vocab_size: int, special_tokens: list[str], **kwargs: Any
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    from trafo.tokenizer.train import train_bpe

    return train_bpe(input_path, vocab_size, special_tokens, **kwargs)


# Glue


def _path_or_file(file: str | os.PathLike[str] | IO[bytes]) -> Path | IO[bytes]:
    return Path(file) if isinstance(file, str | os.PathLike) else file


def _with(module: torch.nn.Module, **weights: Tensor) -> torch.nn.Module:
    module.load_state_dict(weights)
    return module


def _projections(q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> dict[str, Tensor]:
    weights = {"q": q, "k": k, "v": v, "output": output}
    return {f"{name}_proj.weight": weight for name, weight in weights.items()}
