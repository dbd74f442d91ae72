"""One training step: batch -> loss -> gradients -> gradient clipping -> update.

The loss is the mean over the target tokens of the whole batch, however it is split over ranks and
accumulation steps: each part adds up its losses and divides by the number of tokens in all of them.
Dropout is drawn for each sequence on its own, from the seed, the step and its place in the whole
batch, so it does not depend on that either.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from trafo.checkpoint.snapshot import Snapshot, restore, take
from trafo.fast.mixed import mixed_precision
from trafo.nn import Dropout, dropout_by_row
from trafo.optim import clip_gradients
from trafo.optim.config import set_rates
from trafo.optim.sharded import whole
from trafo.runtime.threads import ThreadChooser
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks, gradients_stay_here, whole_model
from trafo.training.machine import dtype_of
from trafo.training.tasks.task import Task


@dataclass(frozen=True)
class StepResult:
    """The result of a training step."""

    loss: float
    grad_norm: float
    num_targets: int
    """target tokens of the whole batch"""
    batch: int
    """CRC-32 of this rank's part of it, to compare batches"""
    norms: dict[str, float] = field(default_factory=dict)
    """`weight_norm/...`, `gradient_norm/...`, `activation_rms/...`, if they were asked for"""

    @property
    def is_sound(self) -> bool:
        """Whether loss and gradients are finite; if not, nothing was updated."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


@dataclass
class Training:
    """Everything that trains: a model, its task and its optimizers."""

    config: TrainConfig
    ranks: Ranks
    device: torch.device
    task: Task
    model: Module
    objective: Module
    """the model with its loss, as this rank runs it"""
    optimizers: list[Optimizer]
    threads: ThreadChooser = field(default_factory=lambda: ThreadChooser(1, lambda number: None))
    """chooses the number of CPU threads by timing the steps"""

    def __post_init__(self) -> None:
        self._parameters = [
            parameter
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._dtype = getattr(torch, dtype_of(self.config.machine))
        modules = self.model.modules()
        self._has_dropout = any(isinstance(module, Dropout) and module.p for module in modules)
        blocks = self.task.blocks(self.model) if self.config.watch.norms else {}
        self._norms = NormWatch(self.model, blocks)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def step(self, step: int, *, seed: int, rate_factor: float, norms: bool = False) -> StepResult:
        """Update the weights with the batch of `step`, unless loss or gradients are not finite."""
        with self.threads.timed():
            return self._step(step, seed, rate_factor, norms)

    def _step(self, step: int, seed: int, rate_factor: float, norms: bool) -> StepResult:
        # All randomness of a step follows from its number, so a resumed run draws the same.
        torch.manual_seed(_mixed(seed, step, self.ranks.rank))
        self._norms.is_on = norms
        loss, num_targets, check_sum = self._backward(step, seed)
        found = self._norms.take()
        norm = clip_gradients(self._parameters, self.config.optimizer.max_grad_norm or math.inf)
        result = StepResult(loss, float(norm), num_targets, check_sum, found)
        if result.is_sound:
            set_rates(self.optimizers, rate_factor)
            with mixed_precision(self.device, self._dtype):
                for optimizer in self.optimizers:
                    optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return result

    def _backward(self, step: int, seed: int) -> tuple[float, int, int]:
        """Compute the gradients; returns the batch's loss, target tokens and checksum."""
        ranks, accumulate = self.ranks, self.config.accumulate
        num_parts = ranks.world * accumulate
        total = torch.zeros((), dtype=torch.float64)
        check_sum = 0
        for part in range(accumulate):
            number = ranks.rank * accumulate + part
            position = 0 if self.config.overfit else step
            batch = self.task.batch(seed, position, number, num_parts, self.device)
            for tensor in batch.inputs:
                check_sum = zlib.crc32(tensor.cpu().numpy().tobytes(), check_sum)
            generators = self._generators(seed, step, batch.rows)
            with gradients_stay_here(self.objective, stay=part < accumulate - 1):
                with dropout_by_row(generators):
                    loss = self.objective(*batch.inputs) / batch.num_targets
                (loss * ranks.world).backward()  # ranks average, we want the sum
            total += loss.detach().cpu().double()
        return float(ranks.add_up(total)), batch.num_targets, check_sum

    def _generators(self, seed: int, step: int, rows: range) -> list[torch.Generator]:
        """One for each row of the batch, the same however the batch is split."""
        if not self._has_dropout:
            return []
        return [torch.Generator(self.device).manual_seed(_mixed(seed, step, row)) for row in rows]

    def snapshot(self) -> Snapshot:
        """Weights and optimizer state, for a checkpoint; all ranks must call this."""
        return take(self.model, self.optimizers)

    def restore(self, snapshot: Snapshot) -> None:
        """Load weights and optimizer state."""
        restore(snapshot, self.model, self.optimizers)

    def whole_model(self) -> Module | None:
        """The full model, to validate or sample. All ranks call this, the first gets it."""
        return whole_model(self.model, self.config.model_config, self.ranks)


class NormWatch:
    """Norms of weights, gradients and activations, layer by layer, while it is on.

    Under FSDP all ranks must watch the same steps: a norm is computed from all shards.
    """

    def __init__(self, model: Module, blocks: Mapping[str, Module]) -> None:
        self.is_on = False
        self._model = model
        self._activations: dict[str, float] = {}
        for name, block in blocks.items():
            block.register_forward_hook(partial(self._look, name))

    @torch.no_grad()
    def take(self) -> dict[str, float]:
        """The norms, between the backward pass and the update; empty if it is off."""
        if not self.is_on:
            return {}
        found = {}
        for name, parameter in self._model.named_parameters():
            found[f"weight_norm/{name}"] = _norm(parameter)
            if parameter.grad is not None:
                found[f"gradient_norm/{name}"] = _norm(parameter.grad)
        return found | self._activations

    def _look(self, name: str, module: Module, inputs: object, output: Tensor) -> None:
        if self.is_on:
            rms = output.detach().square().mean().sqrt()
            self._activations[f"activation_rms/{name}"] = float(rms)


def _norm(tensor: Tensor) -> float:
    return float(whole(tensor.detach().norm()))


def _mixed(*numbers: int) -> int:
    """One seed from several numbers, with no relation between neighbours."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
