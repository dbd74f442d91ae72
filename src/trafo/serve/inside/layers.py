"""What the layers of a model compute from a text.

Logit lens (nostalgebraist, 2020): the final norm and the output head, applied to the hidden states
after every layer, show what that layer would predict. Norms: the L2 norm of each hidden state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, ModuleList
from torch.utils.hooks import RemovableHandle

from trafo.generate.config import GenerationConfig
from trafo.generate.request import window_start
from trafo.models import CausalLM, EncoderDecoder, record_attention

ALTERNATIVES = 5
"""likeliest tokens of each layer and position"""


@dataclass(frozen=True)
class LogitLens:
    """What every layer would predict, from the embedding (layer 0) to the model's output."""

    ids: Int[Tensor, "layer seq best"]
    """the likeliest next tokens"""
    probabilities: Float[Tensor, "layer seq best"]
    norms: Float[Tensor, "layer seq"]
    """L2 norm of the hidden state"""


def copy_modules(model: CausalLM) -> CausalLM:
    """Return the same weights in new modules, whose hooks do not see calls of other threads."""
    tensors = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


@torch.inference_mode()
def next_logits(model: CausalLM, ids: Sequence[int]) -> Float[Tensor, " vocab"]:
    """Return the logits of the next token, with the window that generation would use."""
    seen = ids[_window(model, len(ids)) :]
    states = model.hidden_states(_row(model, seen))[0, -1]
    return model.logits(states).float()


@torch.inference_mode()
def token_logprobs(model: CausalLM, ids: Sequence[int]) -> list[float | None]:
    """Return the log-probability of each token after those before it, None for the first.

    A text longer than the context is read window by window, as generation writes it.
    """
    found: list[float | None] = [None]
    while len(found) < len(ids):
        first = len(found)
        start = _window(model, first)
        stop = min(len(ids), start + model.context_length + 1)
        logits = model(_row(model, ids[start : stop - 1]))[0, first - 1 - start :]
        following = torch.tensor(ids[first:stop], device=logits.device)
        logprobs = logits.float().log_softmax(-1)
        found += logprobs.gather(-1, following[:, None])[:, 0].tolist()
    return found


def _window(model: CausalLM, num_ids: int) -> int:
    return window_start(num_ids, model.context_length, GenerationConfig.kept_share)


@torch.inference_mode()
def inspect_layers(model: CausalLM, ids: Sequence[int]) -> LogitLens:
    """Return the logit lens and norms of a text."""
    with _record_states(model.layers) as states:
        model(_row(model, ids))
    return _make_lens(states, model.ln_final, model.logits)


@torch.inference_mode()
def inspect_translation(
    model: EncoderDecoder, source: Sequence[int], target: Sequence[int], start: int
) -> tuple[LogitLens, Float[Tensor, "layer source"]]:
    """Return the lens of the decoder while it writes a translation, and the encoder's norms.

    Position i of the decoder has read `start` and the first i ids of the target.
    """
    with _record_states(model.encoder) as encoded, _record_states(model.decoder) as decoded:
        model(_row(model, source), _row(model, [start, *target[:-1]]))
    return _make_lens(decoded, model.decoder_norm, model.logits), _norms(encoded)


def _make_lens(
    states: list[Tensor], norm: Module | None, head: Callable[[Tensor], Tensor]
) -> LogitLens:
    best = [_predict(state, norm, head) for state in states]
    return LogitLens(
        torch.stack([i for i, _ in best]), torch.stack([p for _, p in best]), _norms(states)
    )


def _norms(states: list[Tensor]) -> Float[Tensor, "layer seq"]:
    return torch.stack([state.float().norm(dim=-1) for state in states])


@torch.inference_mode()
def attention_weights(
    model: CausalLM, ids: Sequence[int]
) -> list[Float[Tensor, "heads query key"]]:
    """Return every layer's attention weights: query i looks at key j, rows sum to 1."""
    with record_attention(model) as recorded:
        model(_row(model, ids))
    return [weights[0][0] for weights in recorded.values()]


def encode_weights(weights: Float[Tensor, ...]) -> bytes:
    """Write weights from 0 to 1 as 16-bit integers, little-endian: 65535 is 1."""
    return (weights * 65535).round().cpu().numpy().astype("<u2").tobytes()


def replace_nonfinite(numbers: Sequence[float]) -> list[float | None]:
    """Replace infinity and NaN, which JSON does not have, by None."""
    return [number if math.isfinite(number) else None for number in numbers]


def _row(model: CausalLM | EncoderDecoder, ids: Sequence[int]) -> Int[Tensor, "1 seq"]:
    return torch.tensor([list(ids)], device=model.head_weight.device)


@contextmanager
def before_each_layer(model: Module, check: Callable[[], None]) -> Iterator[None]:
    """Call `check`, whose error ends the computation, before every part of a model computes."""

    def call(*_: object) -> None:
        check()

    with _removing([part.register_forward_pre_hook(call) for part in model.modules()]):
        yield


@contextmanager
def _record_states(layers: ModuleList) -> Iterator[list[Tensor]]:
    """Record the input of the first layer and the output of every layer, (seq, d_model) each."""
    states: list[Tensor] = []

    def before(_: Module, args: tuple[Tensor, ...]) -> None:
        states.append(args[0][0])

    def after(_: Module, __: tuple[Tensor, ...], output: Tensor) -> None:
        states.append(output[0])

    handles = [layers[0].register_forward_pre_hook(before)]
    with _removing([*handles, *(layer.register_forward_hook(after) for layer in layers)]):
        yield states


@contextmanager
def _removing(hooks: list[RemovableHandle]) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _predict(
    state: Float[Tensor, "seq d_model"], norm: Module | None, head: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the likeliest next tokens, and their probabilities, if this were the last layer."""
    normed = state if norm is None else norm(state[None])[0]
    probabilities = head(normed).float().softmax(-1)
    best = probabilities.topk(min(ALTERNATIVES, probabilities.shape[-1]))
    return best.indices, best.values
