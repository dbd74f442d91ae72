"""A config -> data, model and optimizers, checked to fit together."""

from __future__ import annotations

import os

import torch

from trafo.errors import require
from trafo.fast import accelerate
from trafo.fast.threads import torch_threads
from trafo.models import build_model
from trafo.optim.config import build_optimizers
from trafo.runtime.process import seed_everything
from trafo.runtime.threads import ThreadChooser
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks, distribute
from trafo.training.fit_memory import require_memory
from trafo.training.machine import device_of
from trafo.training.step import Training
from trafo.training.tasks.language import LanguageModelling
from trafo.training.tasks.task import Task
from trafo.training.tasks.translation import Translation


def build(config: TrainConfig, ranks: Ranks) -> Training:
    """Prepare the data, make the model and the optimizers."""
    device = torch.device(device_of(config.machine, ranks.local_rank))
    threads = _threads(config, ranks, device)
    if device.type == "cpu" and ranks.world == 1:
        require_memory(config)
    task = make_task(config, ranks)
    seed_everything(config.seed)
    model = build_model(config.model_config, device=device)
    if config.machine.fast:
        accelerate(model)
    blocks = task.blocks(model).values()
    objective = distribute(task.objective(model), blocks, ranks, config.machine.parallel)
    if config.machine.compile:
        objective.compile()
    optimizers = build_optimizers(model, config.optimizer)
    return Training(config, ranks, device, task, model, objective, optimizers, threads)


def make_task(config: TrainConfig, ranks: Ranks) -> Task:
    """The task, with its data prepared by the first rank for all."""
    if not ranks.is_first:
        ranks.wait()
    _check_data(config)
    task = (Translation if config.translates else LanguageModelling)(config, ranks)
    if ranks.is_first:
        ranks.wait()
    return task


def _check_data(config: TrainConfig) -> None:
    """Raise if the kind of data does not fit the kind of model."""
    name = config.architecture
    if config.translates:
        what, hint = f"{name} learns from sentence pairs", "give two aligned files by --pairs"
        require(bool(config.pairs), what, hint)
    else:
        hint = "choose the architecture encoder-decoder or recurrent"
        require(not config.pairs, f"{name} does not learn from sentence pairs", hint)


def _threads(config: TrainConfig, ranks: Ranks, device: torch.device) -> ThreadChooser:
    """As asked for; ranks share the cores evenly, for they wait for each other anyway."""
    number = config.machine.threads
    if number is None and ranks.world > 1:
        number = max(1, (os.cpu_count() or 1) // ranks.world)
    if number is None and device.type != "cpu":
        number = torch.get_num_threads()
    return torch_threads(number)
