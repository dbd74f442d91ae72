"""A run from its beginning, and a run that goes on: the two ways into the loop."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from time import perf_counter

from trafo.checkpoint.store import CheckpointStore
from trafo.errors import ConfigError, TrafoError
from trafo.runtime.console import say
from trafo.runtime.sizes import format_duration
from trafo.train.build import Training, build
from trafo.train.config import TrainConfig
from trafo.train.distributed import Ranks, ranks
from trafo.train.loop import DONE, Trainer
from trafo.train.plan import Plan, seconds_per_step, steps_that_fit, time_to_train
from trafo.train.run import RunFolder, State
from trafo.train.summary import summary


def train(config: TrainConfig) -> int:
    """Train a model in a new folder; returns the exit code."""
    started = perf_counter()
    with ranks() as mine:
        folder = _new_folder(_anchored(config), mine)
        with _Held(folder, mine):
            try:
                return _begin(folder, mine, started)
            except TrafoError:
                if mine.is_first and not CheckpointStore(folder.checkpoints).steps():
                    folder.remove()  # nothing was done: the same name can be used again
                raise


def resume(path: str | Path, config: TrainConfig | None = None) -> int:
    """Go on with a run where its newest checkpoint stands; `config` replaces the one it has."""
    started = perf_counter()
    folder = RunFolder.existing(path)
    with ranks() as mine, _Held(folder, mine):
        before = folder.read_config()
        config = config or before
        if not CheckpointStore(folder.checkpoints).steps():  # killed before the first one
            folder.write_config(config)
            return _begin(folder, mine, started)
        _check_same_optimizer(before, config)
        training = build(config, mine)
        trainer = Trainer(training, folder, State(plan=Plan.of(config, config.steps)), started)
        trainer.continue_from_newest()
        _prolong(trainer, before, config)
        if mine.is_first:
            folder.write_config(config)
            say(f"going on at step {trainer.state.step:,} of {trainer.state.plan.steps:,}")
        return _fit(trainer)


def _check_same_optimizer(before: TrainConfig, config: TrainConfig) -> None:
    """What one optimizer has kept of the past means nothing to another."""
    if before.optimizer.name != config.optimizer.name:
        raise ConfigError(
            f"optimizer.name is {config.optimizer.name}, this run has {before.optimizer.name}",
            hint="leave it, or begin a new run",
        )


def _begin(folder: RunFolder, mine: Ranks, started: float) -> int:
    """From the folder's config to the end of its run."""
    config = folder.read_config()
    training = build(config, mine)
    plan = _plan(training, started)
    if mine.is_first:
        training.dataset.tokenizer.save(folder.tokenizer)
        folder.mark_latest()
        say(_opening(training, plan, folder))
    return _fit(Trainer(training, folder, State(plan=plan), started))


def _plan(training: Training, started: float) -> Plan:
    config = training.config
    if config.budget is None:
        return Plan.of(config, config.steps)
    seconds = time_to_train(config.budget)
    per_step = seconds_per_step(training, seconds)
    left = training.ranks.agree(seconds - (perf_counter() - started))
    steps = steps_that_fit(left, per_step)
    if steps < 1:
        raise ConfigError(
            f"budget is {config.budget}: {format_duration(max(left, 0))} are left after reading "
            f"the text, a step takes {format_duration(per_step)}",
            hint="give more time, or make the model or the batch smaller",
        )
    return Plan.of(config, steps)


def _prolong(trainer: Trainer, before: TrainConfig, config: TrainConfig) -> None:
    """`trafo resume RUN --steps 2000` or `--budget 1h`; otherwise the plan stays as it was."""
    state = trainer.state
    if config.budget is None and config.steps != before.steps:
        state.plan = dataclasses.replace(state.plan, steps=config.steps)
    elif config.budget is not None and config.budget != before.budget:
        left = time_to_train(config.budget) - state.seconds
        state.plan = state.plan.corrected(state.step, left, state.seconds / max(1, state.step))


def _fit(trainer: Trainer) -> int:
    trainer.store.remove_leftovers()
    code = trainer.fit()
    if code == DONE and trainer.ranks.is_first:
        summary(trainer)
    return code


def _opening(training: Training, plan: Plan, folder: RunFolder) -> str:
    config = training.config
    tokens = plan.steps * config.tokens_per_step
    return (
        f"{folder.path}: {training.num_parameters:,} parameters, "
        f"{len(training.dataset.training):,} ids to train on, "
        f"{plan.steps:,} steps of {config.batch_size} x {config.seq} ids "
        f"({tokens / len(training.dataset.training):.1f} times the text)"
    )


def _new_folder(config: TrainConfig, mine: Ranks) -> RunFolder:
    """Made by the first rank, with its config in it, which is the config of all ranks."""
    if not mine.is_first:
        return RunFolder(Path(mine.agree_on("")))
    folder = RunFolder.new(config)
    folder.write_config(config)
    return RunFolder(Path(mine.agree_on(str(folder.path))))


def _anchored(config: TrainConfig) -> TrainConfig:
    """Paths that hold wherever the run is resumed from."""
    data = config.data

    def whole(path: Path | None) -> Path | None:
        return None if path is None else path.resolve()

    def texts(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(Path(text).absolute()) for text in given)

    anchored = dataclasses.replace(
        data,
        tokens=whole(data.tokens),
        tokenizer=whole(data.tokenizer),
        validation=texts(data.validation),
        cache=data.cache.resolve(),
    )
    return dataclasses.replace(config, text=texts(config.text), data=anchored)


class _Held:
    """The folder belongs to this run alone while the block runs."""

    def __init__(self, folder: RunFolder, mine: Ranks) -> None:
        self._folder = folder
        self._mine = mine

    def __enter__(self) -> None:
        self._file = self._folder.hold() if self._mine.is_first else None

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
