"""A config -> everything that a training consists of, checked to fit together."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch.nn import Module
from torch.optim import Optimizer

from trafo.data.prepare import Dataset, prepare
from trafo.data.windows import WindowSampler, num_windows
from trafo.errors import ConfigError
from trafo.models import CausalLM, build_model
from trafo.optim.config import build_optimizers
from trafo.runtime.seed import seed_everything
from trafo.train.config import TrainConfig
from trafo.train.distributed import Ranks, compiled, distribute
from trafo.train.objective import NextTokenLoss
from trafo.train.step import Stepper


@dataclass
class Training:
    """The live parts of a training."""

    config: TrainConfig
    ranks: Ranks
    dataset: Dataset
    model: CausalLM
    objective: Module
    optimizers: list[Optimizer]
    stepper: Stepper
    device: torch.device

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def build(config: TrainConfig, ranks: Ranks) -> Training:
    """Prepare the data, make the model, the optimizers and what takes the steps."""
    device = _device(config, ranks)
    dataset = prepare_data(config, ranks)
    seed_everything(config.seed)
    model = build_model(config.lm, device=device)
    assert isinstance(model, CausalLM)
    loss = NextTokenLoss(model, getattr(torch, config.machine.dtype))
    objective = distribute(loss, model.layers, ranks, config.machine.parallel)
    if config.machine.compile:
        objective = compiled(objective)
    optimizers = build_optimizers(model, config.optimizer)
    stepper = Stepper(
        objective,
        optimizers,
        WindowSampler(dataset.training, config.batch_size, config.seq, config.seed),
        ranks,
        accumulate=config.accumulate,
        max_grad_norm=config.optimizer.max_grad_norm,
        overfit=config.overfit,
        device=device,
    )
    return Training(config, ranks, dataset, model, objective, optimizers, stepper, device)


def prepare_data(config: TrainConfig, ranks: Ranks) -> Dataset:
    """Encoded by the first rank; the others find it done."""
    if not ranks.is_first:
        ranks.wait()
    dataset = prepare(config.text, config.data, config.lm.vocab_size)
    if ranks.is_first:
        ranks.wait()
    _check_fit(config, dataset, ranks)
    return dataset


def _check_fit(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> None:
    vocab = dataset.tokenizer.vocab_size
    if config.lm.vocab_size < vocab:
        raise ConfigError(
            f"{config.branch}.vocab_size is {config.lm.vocab_size:,}, the tokenizer has {vocab:,}",
            hint=f"set {config.branch}.vocab_size to {vocab} or more",
        )
    for name, ids in (("training", dataset.training), ("validation", dataset.validation)):
        if len(ids) <= config.seq:
            raise ConfigError(
                f"context_length is {config.seq}, there are only {len(ids):,} ids for {name}",
                hint="use more text, a shorter context_length, or another data.held_out",
            )
    places = num_windows(len(dataset.training), config.seq)
    if config.batch_size > places:
        raise ConfigError(
            f"batch_size is {config.batch_size:,}, the data has {places:,} different sequences",
            hint="use more text or a smaller batch_size",
        )
    parts = ranks.world * config.accumulate
    if config.batch_size % parts:
        raise ConfigError(
            f"batch_size is {config.batch_size}, to be split over {ranks.world} processes "
            f"times accumulate {config.accumulate}",
            hint=f"choose a multiple of {parts}",
        )


def _device(config: TrainConfig, ranks: Ranks) -> torch.device:
    """The device of this rank, with its threads set."""
    machine = config.machine
    try:
        # Each rank of a machine takes a GPU of its own.
        name = f"cuda:{ranks.local_rank}" if machine.device == "cuda" else machine.device
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        what = f"machine.device is {machine.device!r}: {str(error).splitlines()[0]}"
        raise ConfigError(what, hint="cpu is always there") from None
    threads = machine.threads
    if threads is None and ranks.world > 1:
        threads = max(1, (os.cpu_count() or 1) // ranks.world)
    if threads is not None:
        torch.set_num_threads(threads)
    return device
