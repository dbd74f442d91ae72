"""What beam search asks of a model: logits for every row, and rows that follow other rows.

`CachedDecoder` uses the model's own cache. `CompiledDecoder` does the same for the Transformer on
the CPU with compiled kernels: no key is ever copied, and beams share the keys of their source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from trafo.data.pair_batches import padded
from trafo.generate import beam_kernels
from trafo.models import EncoderDecoder
from trafo.models.encoder_decoder import DecoderCache
from trafo.models.encoder_decoder_layers import DecoderLayer
from trafo.models.recurrent import RecurrentCache
from trafo.models.translator import Translator
from trafo.nn import ACTIVATIONS, FeedForward, LayerNorm, Linear, residual
from trafo.runtime.kernels import kernel_threads

Rows = Callable[[Tensor], Tensor]


class BeamDecoder(Protocol):
    """A decoder with one row per hypothesis; it begins with one row per sentence."""

    def logits(self, last: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """For the token after `last`, which continues each row."""

    def follow(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Row i goes on with the hypothesis of row `rows[i]`."""


def make_decoder(
    model: Translator, sources: Sequence[Sequence[int]], most_tokens: int
) -> BeamDecoder:
    """A decoder for these sources, compiled where it can be."""
    device = model.head_weight.device
    ids = [np.asarray(source, np.int32) for source in sources]
    batch = padded(ids, model.config.padding_id).to(device)
    if isinstance(model, EncoderDecoder) and can_compile(model):
        lengths = np.array([len(source) for source in sources])
        return CompiledDecoder(model, batch, lengths, most_tokens)
    return CachedDecoder(model, batch, most_tokens)


def can_compile(model: EncoderDecoder) -> bool:
    """Whether the kernels support this model's numbers and device."""
    weight = model.head_weight
    return weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)


class CachedDecoder:
    """Any translation model, with its own cache."""

    def __init__(self, model: Translator, sources: Tensor, most_tokens: int) -> None:
        self._model = model
        self._memory = model.encode(sources)
        self._cache = model.make_cache(len(sources), most_tokens)
        self._sentences = torch.arange(len(sources), device=sources.device)

    def logits(self, last: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """By the model's `decode`."""
        model = self._model
        return model.decode(last[:, None], self._memory, cache=self._cache)[:, -1]  # type: ignore[arg-type]

    def follow(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Reorder the cache; only the target's part if the sentences stay where they are."""
        sentences = self._sentences[rows]
        if torch.equal(sentences, self._sentences):
            reorder_beams(self._cache, rows)
        else:
            self._cache.reorder(rows)
        self._sentences = sentences


def reorder_beams(cache: DecoderCache | RecurrentCache, rows: Int[Tensor, " rows"]) -> None:
    """Row i becomes a copy of row `rows[i]` of the same sentence, which has the same source."""
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
    if not len(moved):
        return
    if isinstance(cache, RecurrentCache):
        assert cache.state is not None
        cache.state = cache.state[rows]
        return
    used = int(cache.target.lengths.max())
    for stored in (cache.target.keys, cache.target.values):
        stored[:, moved, :, :used] = stored[:, rows[moved], :, :used]


class CompiledDecoder:
    """The decoder of an `EncoderDecoder`, one token per row at a time."""

    def __init__(
        self,
        model: EncoderDecoder,
        sources: Int[Tensor, "sentences source"],
        lengths: NDArray[np.int64],
        most_tokens: int,
    ) -> None:
        self._model = model
        memory = model.encode(sources).states
        self._layers = [
            _Layer(cast(DecoderLayer, layer), memory, most_tokens) for layer in model.decoder
        ]
        self._lengths = lengths
        self._sentences = np.arange(len(sources))
        self._ancestors = np.zeros((len(sources), most_tokens), np.int64)
        self._step = 0

    def logits(self, last: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """What the model computes, up to rounding."""
        model, step = self._model, self._step
        self._ancestors[:, step] = np.arange(len(last))
        x = model.embed_target(last[:, None], torch.tensor([[step]]))[:, 0]
        ancestors = self._ancestors[:, : step + 1]
        with kernel_threads(torch.get_num_threads()):
            for layer in self._layers:
                x = layer(x, ancestors, self._sentences, self._lengths)
        self._step += 1
        return model.logits(x if model.decoder_norm is None else _norm(model.decoder_norm)(x))

    def follow(self, rows: Int[Tensor, " new_rows"]) -> None:
        """No key moves: the rows get other ancestors."""
        self._ancestors = self._ancestors[rows.numpy()]
        self._sentences = self._sentences[rows.numpy()]


class _Layer:
    """One `DecoderLayer`, with its keys and values of source and target."""

    def __init__(
        self, layer: DecoderLayer, memory: Float[Tensor, "sentences source d_model"], steps: int
    ) -> None:
        attn, cross = layer.self_attn, layer.cross_attn
        self._num_heads = attn.num_heads
        self._qkv = _joined(attn.q_proj, attn.k_proj, attn.v_proj)
        self._output = _linear(attn.output_proj)
        self._cross_q, self._cross_output = _linear(cross.q_proj), _linear(cross.output_proj)
        source = memory.transpose(0, 1)  # (source, sentences, d_model), as the kernel reads it
        self._source_keys = _linear(cross.k_proj)(source).numpy()
        self._source_values = _linear(cross.v_proj)(source).numpy()
        self._ffn = _feed_forward(cast(FeedForward, layer.ffn))
        self._norms = [_norm(norm) for norm in (layer.ln1, layer.ln2, layer.ln3)]
        self._placement = layer.norm_placement
        self._steps = steps
        self._target: tuple[NDArray[np.floating], ...] = ()

    def __call__(
        self,
        x: Float[Tensor, "rows d_model"],
        ancestors: NDArray[np.int64],
        sentences: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> Float[Tensor, "rows d_model"]:
        def attend_to_target(h: Tensor) -> Tensor:
            q, *new = self._qkv(h).chunk(3, dim=-1)
            step = ancestors.shape[1] - 1
            keys, values = self._stored(step, *new)
            out = torch.empty_like(h)
            beam_kernels.attend_to_target(
                q.numpy(), keys, values, ancestors, self._num_heads, out.numpy()
            )
            return self._output(out)

        def attend_to_source(h: Tensor) -> Tensor:
            out = torch.empty_like(h)
            beam_kernels.attend_to_source(
                self._cross_q(h).numpy(),
                self._source_keys,
                self._source_values,
                sentences,
                lengths,
                self._num_heads,
                out.numpy(),
            )
            return self._cross_output(out)

        x = residual(x, attend_to_target, self._norms[0], self._placement)
        x = residual(x, attend_to_source, self._norms[1], self._placement)
        return residual(x, self._ffn, self._norms[2], self._placement)

    def _stored(self, step: int, *new: Tensor) -> tuple[NDArray[np.floating], ...]:
        """All keys and values, those of this step among them."""
        if step < 2:  # one row per sentence at first, then one per hypothesis
            before = self._target
            most = max(len(new[0]), before[0].shape[1] if before else 0)
            shape = self._steps, most, new[0].shape[1]
            self._target = tuple(np.empty(shape, each.numpy().dtype) for each in new)
            for stored, old in zip(self._target, before, strict=False):
                stored[0, : old.shape[1]] = old[0]
        for stored, each in zip(self._target, new, strict=True):
            stored[step, : len(each)] = each.numpy()
        return self._target


def _joined(*layers: Linear) -> Rows:
    """Several linear maps of the same input as one product."""
    weights: list[Tensor] = [layer.weight for layer in layers]
    weight = torch.cat(weights)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    bias = torch.cat(biases) if biases else None
    return lambda x: functional.linear(x, weight, bias)


def _linear(layer: Linear) -> Rows:
    return lambda x: functional.linear(x, layer.weight, layer.bias)


def _norm(norm: object) -> Rows:
    assert isinstance(norm, LayerNorm)
    return lambda x: functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def _feed_forward(ffn: FeedForward) -> Rows:
    first, second = _linear(ffn.w1), _linear(ffn.w2)
    activation = torch.relu_ if ffn.activation == "relu" else ACTIVATIONS[ffn.activation]
    return lambda x: second(activation(first(x)))
