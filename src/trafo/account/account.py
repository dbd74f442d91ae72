"""A model's config and a workload -> parameters, FLOPs, activations, KV cache and time.

Derived from a dry run (`dry_run.py`) of the model itself, so no model is described a second time.
Layers of a kind are alike: one of each is run, and counted as often as the model has it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch.nn import Module

from trafo.account.dry_run import (
    MatrixProduct,
    Moments,
    PartKey,
    Recorder,
    dry_run,
    find_part,
    lists_of_layers,
)
from trafo.account.workload import Workload
from trafo.errors import ConfigError, require
from trafo.fast import accelerate
from trafo.models import GPT2Config, ModelConfig, TransformerLMConfig, build_model
from trafo.nn import Linear

# Enough to fill the blocks in which a training step computes activations and logits.
_ENOUGH_TOKENS = 8192


@dataclass(frozen=True)
class Part:
    """A row of the table: the cost of a part in all layers of its block together."""

    block: str
    name: str
    layers: int
    parameters: int
    forward_flops: int
    backward_flops: int
    products: tuple[MatrixProduct, ...]
    """of one layer"""


@dataclass(frozen=True)
class Account:
    """The cost of a model at a workload. Each number is computed when it is first asked for."""

    config: ModelConfig
    work: Workload

    @cached_property
    def model(self) -> Module:
        """The model with one layer of each kind, on the meta device."""
        return _build(self.config, self.work)

    @cached_property
    def layers(self) -> dict[str, int]:
        """Number of layers in each list of layers, 1 for modules outside of them."""
        names = lists_of_layers(self.model)
        fields = ["num_layers" if name == "layers" else f"num_{name}_layers" for name in names]
        return {n: getattr(self.config, field, 1) for n, field in zip(names, fields, strict=True)}

    @property
    def parameters(self) -> int:
        """Number of parameters, of which tied weights count once."""
        named = self.model.named_parameters()
        return sum(self.layers[find_part(name).block] * p.numel() for name, p in named)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The rows of the table, in the order in which they run."""
        parameters: Counter[PartKey] = Counter()
        for name, parameter in self.model.named_parameters():
            parameters[find_part(name)] += parameter.numel()
        forward = self._forward_pass()
        products: dict[PartKey, list[MatrixProduct]] = defaultdict(list)
        for (key, product), times in forward.products.items():
            products[key].append(replace(product, times=times))
        keys = _sort_by_block(dict.fromkeys([*forward.parts.values(), *parameters]))
        return tuple(
            Part(
                *key,
                layers=(layers := self.layers[key.block]),
                parameters=layers * parameters[key],
                forward_flops=layers * sum(each.forward_flops for each in products[key]),
                backward_flops=layers * sum(each.backward_flops for each in products[key]),
                products=tuple(products[key]),
            )
            for key in keys
        )

    @property
    def forward_flops(self) -> int:
        """FLOPs of the matrix products."""
        return sum(part.forward_flops for part in self.parts)

    @property
    def backward_flops(self) -> int:
        """FLOPs of the gradients of the matrix products."""
        return sum(part.backward_flops for part in self.parts) if self.work.is_training else 0

    @property
    def flops(self) -> int:
        """FLOPs of one forward pass, and in training of the backward pass too."""
        return self.forward_flops + self.backward_flops

    @property
    def kept(self) -> Counter[PartKey]:
        """Bytes kept after the forward pass: activations, or the KV cache (or recurrent state)."""
        kept, _ = self.timeline()
        return Counter({key: self.layers[key.block] * kept[key] for key in kept})

    @property
    def tokens(self) -> int:
        """Tokens generated, or in training and prefill read (of the target)."""
        per_row = 1 if self.work.phase == "decode" else self.work.seq
        return self.work.batch_size * per_row

    def timeline(self, *, accumulating: bool = False) -> tuple[Counter[PartKey], Moments]:
        """Bytes kept, and alive at each moment, with one layer of each kind (see `Recorder`).

        Large batches are not run: from some size on, all of it grows in proportion.
        """
        config, work = self.config, self.work
        tokens = _ENOUGH_TOKENS if work.is_training else 0
        enough = max(4, tokens // max(work.seq, work.source))
        if work.batch_size <= enough:
            return _timeline(config, work, accumulating)
        fewer, more = (
            _timeline(config, replace(work, batch_size=size), accumulating)
            for size in (enough // 2, enough)
        )
        factor = (work.batch_size - enough // 2) / (enough - enough // 2)
        kept = _extrapolate(fewer[0], more[0], factor)
        return kept, _extrapolate(fewer[1], more[1], factor)

    def _forward_pass(self) -> Recorder:
        """Run the readable model, whose products have names."""
        model = _build(self.config, self.work)
        for module in model.modules():
            if self.work.is_training and getattr(module, "window", None):
                accelerate(module)  # a window saves work only where it is fast
        return dry_run(model, self.work, backward=False)


@lru_cache(maxsize=64)
def _timeline(
    config: ModelConfig, work: Workload, accumulating: bool
) -> tuple[Counter[PartKey], Moments]:
    """Run the accelerated model, which is what `trafo train` runs."""
    model = accelerate(_build(config, work))
    if accumulating:
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
    recorder = dry_run(model, work)
    return recorder.kept, recorder.most_bytes


def _extrapolate(few: Counter[Any], many: Counter[Any], factor: float) -> Counter[Any]:
    return Counter({key: round(few[key] + factor * (many[key] - few[key])) for key in many})


def _build(config: ModelConfig, work: Workload) -> Module:
    numbers: Any = {f.name: 1 for f in dataclasses.fields(config) if f.name.endswith("layers")}
    return build_model(replace(config, **numbers), "meta", getattr(torch, work.dtype))


def _sort_by_block(keys: dict[PartKey, None]) -> list[PartKey]:
    """Sort by when they run, the parts of a list of layers together, and the head last."""
    first = {block: i for i, block in reversed([(i, p.block) for i, p in enumerate(keys)])}
    order = {key: first[key.block] if key.block else i for i, key in enumerate(keys)}
    return sorted(keys, key=lambda key: (key.name == "head", order[key]))


def account(config: ModelConfig, work: Workload) -> Account:
    """Account for the cost of this model at this workload."""
    return Account(config, work)


@dataclass(frozen=True)
class Speed:
    """Seconds of one step (or pass, or token), of all of them, and tokens per second."""

    seconds_per_step: float
    tokens_per_second: float
    total_seconds: float


def predict_speed(
    result: Account,
    *,
    peak_flops: float,
    utilisation: float = 1.0,
    steps: int = 1,
    accumulation_steps: int = 1,
    update_flops: int = 0,
) -> Speed:
    """Divide FLOPs by the FLOP/s that a machine really reaches.

    `utilisation` is the share of its peak, the model FLOPs utilisation (Chowdhery et al., 2022).
    `update_flops` are the optimizer's own, once per step.
    """
    require(peak_flops > 0, f"peak_flops is {peak_flops:g}", "it must be above 0")
    fits = 0 < utilisation <= 1
    require(fits, f"utilisation is {utilisation:g}", "choose from above 0 up to 1")
    flops = accumulation_steps * result.flops + update_flops
    seconds = flops / (peak_flops * utilisation)
    tokens = accumulation_steps * result.tokens
    return Speed(seconds, tokens / seconds, steps * seconds)


def training_flops(config: TransformerLMConfig | GPT2Config, seq: int, batch_size: int = 1) -> int:
    """Compute by a formula the FLOPs of a training step, which `account(...).flops` derives.

    Per token, a weight takes 2 FLOPs; each head takes 4 d_head for each query and key; and the
    backward pass twice as much as the forward pass.
    """
    layer = _count_layer_weights(replace(config, num_layers=1, vocab_size=1))
    weights = config.num_layers * layer + config.d_model * config.vocab_size
    # With dropout attention computes all weights, also those outside of a window.
    pairs = _count_pairs(seq, None if config.dropout else getattr(config, "window", None))
    attention = config.num_layers * 4 * pairs * config.num_heads * config.d_head
    return 3 * batch_size * (2 * seq * weights + attention)


@lru_cache(maxsize=64)
def _count_layer_weights(config: TransformerLMConfig | GPT2Config) -> int:
    try:
        model: Any = build_model(config, "meta")
    except (RuntimeError, OverflowError, TypeError, MemoryError):  # beyond what torch can count
        raise ConfigError(
            "the model has more weights than can be counted", hint="make it smaller"
        ) from None
    return sum(m.weight.numel() for m in model.layers.modules() if isinstance(m, Linear))


def _count_pairs(seq: int, window: int | None) -> int:
    """Count pairs of query and key, masked ones too: a window is computed in blocks of its size."""
    if window is None or window >= seq:
        return seq * seq
    blocks = -(-seq // window)
    return blocks * window * 2 * window
