"""A model's config and a workload -> parameters, FLOPs, activations and KV cache.

Derived from a dry run (`dry_run.py`) of the model itself, so no model is described a second time.
Layers of a kind are alike: one of each is run, and counted as often as the model has it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from trafo.account.dry_run import AttentionOfCPU, KeptTensors, Moment, Recorder
from trafo.account.parts import MatrixProduct, Part, Place, place_of
from trafo.account.passes import Generation, forward, loss
from trafo.account.workload import Workload
from trafo.fast import accelerate
from trafo.models import ModelConfig, build_model

# So many fill the blocks in which a training step works on activations and logits.
_ENOUGH_TOKENS = 8192


@dataclass(frozen=True)
class Account:
    """The cost of a model at a workload. Each number is computed when it is first asked for."""

    config: ModelConfig
    work: Workload

    @cached_property
    def layers(self) -> dict[str, int]:
        """Number of layers in each list of layers; "" stands for modules outside of them."""
        names = [name for name, part in self.model.named_children() if _is_list(part)]
        sizes = {name: getattr(self.config, _field_of(name)) for name in names}
        return {"": 1} | sizes

    @cached_property
    def model(self) -> Module:
        """The model with one layer of each kind, on the meta device."""
        return _build(self.config, self.work)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The rows of the table, in the order in which they run."""
        parameters: Counter[Place] = Counter()
        for name, parameter in self.model.named_parameters():
            parameters[place_of(name)] += parameter.numel()
        products: dict[Place, list[MatrixProduct]] = defaultdict(list)
        for (place, product), times in self.forward_pass.products.items():
            products[place].append(replace(product, times=times))
        places = dict.fromkeys([*self.forward_pass.places.values(), *parameters])
        return tuple(
            Part(
                place=place,
                layers=(layers := self.layers[place.block]),
                parameters=layers * parameters[place],
                products=tuple(products[place]),
            )
            for place in _by_block(places)
        )

    @cached_property
    def forward_pass(self) -> Recorder:
        """The recorded forward pass of the whole batch."""
        model = _build(self.config, self.work)
        if self.work.is_training:
            for module in model.modules():
                if getattr(module, "window", None):  # saves work only where it is fast
                    accelerate(module)
            recorder = Recorder(model)
            with AttentionOfCPU(), recorder:
                forward(model, self.work)
            return recorder
        return _generate(model, self.work)[0]

    @property
    def parameters(self) -> int:
        """Number of parameters; tied weights count once."""
        named = self.model.named_parameters()
        return sum(self.layers[place_of(name).block] * p.numel() for name, p in named)

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
    def kept_bytes(self) -> int:
        """Activations kept for the backward pass when the forward pass is done."""
        return self.kept.total()

    @property
    def kept(self) -> Counter[Place]:
        """The same by part, of all its layers."""
        kept = self.timeline().kept
        return Counter({place: self.layers[place.block] * kept[place] for place in kept})

    @property
    def cache_bytes(self) -> int:
        """The KV cache, or the state of a recurrent model: what generation keeps between tokens."""
        # It belongs to the layers of the decoder, the last list.
        return self.timeline().cache_bytes * [*self.layers.values()][-1]

    @property
    def tokens(self) -> int:
        """Tokens generated, or in training and prefill read (of the target)."""
        per_row = 1 if self.work.phase == "decode" else self.work.seq
        return self.work.batch_size * per_row

    def timeline(self, *, accumulating: bool = False) -> Timeline:
        """Memory over time with one layer of each kind.

        Large batches are not run: from some size on, all of it grows in proportion.
        """
        config, work = self.config, self.work
        tokens = _ENOUGH_TOKENS if work.is_training else 0
        enough = max(4, tokens // max(work.seq, work.source))
        if work.batch_size <= enough:
            return _timeline(config, work, accumulating)
        fewer, more = (replace(work, batch_size=size) for size in (enough // 2, enough))
        factor = (work.batch_size - fewer.batch_size) / (more.batch_size - fewer.batch_size)
        return _extrapolate(
            _timeline(config, fewer, accumulating), _timeline(config, more, accumulating), factor
        )


def account(config: ModelConfig, work: Workload) -> Account:
    """The cost of this model at this workload."""
    return Account(config, work)


@dataclass(frozen=True)
class Timeline:
    """Memory of a training step, or of a pass of generation."""

    kept: Counter[Place]
    """activations kept for the backward pass, in bytes"""
    moments: list[Moment]
    """bytes alive besides parameters, optimizer state and KV cache"""
    cache_bytes: int = 0


def _is_list(module: Module) -> bool:
    return isinstance(module, ModuleList)


def _field_of(layers: str) -> str:
    """The field of a config that holds the number of layers in a list."""
    return "num_layers" if layers == "layers" else f"num_{layers}_layers"


def _build(config: ModelConfig, work: Workload) -> Module:
    numbers: Any = {f.name: 1 for f in dataclasses.fields(config) if f.name.endswith("layers")}
    return build_model(replace(config, **numbers), "meta", getattr(torch, work.dtype))


@lru_cache(maxsize=64)
def _timeline(config: ModelConfig, work: Workload, accumulating: bool) -> Timeline:
    """Of the accelerated model, which is what `trafo train` runs."""
    model = accelerate(_build(config, work))
    if not work.is_training:
        recorder, cache_bytes = _generate(model, work)
        return Timeline(Counter(), recorder.moments, cache_bytes)
    if accumulating:
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
    with AttentionOfCPU(), Recorder(model) as recorder:
        keeping = KeptTensors(recorder)
        with keeping:
            total = loss(model, work)
        kept = keeping.count(model)
        total.backward()  # type: ignore[no-untyped-call]
    return Timeline(kept, recorder.moments)


def _generate(model: Module, work: Workload) -> tuple[Recorder, int]:
    """The recorded pass, and the bytes of the KV cache."""
    with torch.no_grad(), AttentionOfCPU():
        with Recorder(model):
            generation = Generation(model, work)
        with Recorder(model) as recorder:
            generation.run()
    return recorder, sum(_float_bytes(generation.cache))


def _extrapolate(a: Timeline, b: Timeline, factor: float) -> Timeline:
    """a + factor (b - a), moment by moment."""

    def between(x: int, y: int) -> int:
        return round(x + factor * (y - x))

    kept = Counter({place: between(a.kept[place], b.kept[place]) for place in b.kept})
    before = {(m.place, m.is_backward): m.live_bytes for m in a.moments}
    moments = [
        replace(m, live_bytes=between(before[m.place, m.is_backward], m.live_bytes))
        for m in b.moments
    ]
    return Timeline(kept, moments, between(a.cache_bytes, b.cache_bytes))


def _by_block(places: dict[Place, None]) -> list[Place]:
    """In order of running, the parts of a list of layers together, and the head last."""
    first = {block: i for i, block in reversed([(i, p.block) for i, p in enumerate(places)])}
    order = {place: first[place.block] if place.block else i for i, place in enumerate(places)}
    return sorted(places, key=lambda place: (place.part == "head", order[place]))


def _float_bytes(thing: Any) -> Iterator[int]:
    """Of all tensors of floating-point numbers inside."""
    if isinstance(thing, Tensor):
        yield thing.nbytes if thing.is_floating_point() else 0
    elif isinstance(thing, list | tuple):
        for inner in thing:
            yield from _float_bytes(inner)
    elif hasattr(thing, "__dict__"):
        for inner in vars(thing).values():
            yield from _float_bytes(inner)
