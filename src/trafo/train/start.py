"""The two ways into the loop: a run that begins, and a run that resumes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from trafo.checkpoint.store import CheckpointStore
from trafo.config import with_values
from trafo.errors import TrafoError, require
from trafo.train.auto import choose
from trafo.train.build import build
from trafo.train.config import TrainConfig
from trafo.train.distributed import Ranks, ranks
from trafo.train.loop import Trainer
from trafo.train.plan import Clock, make_plan
from trafo.train.run import Run


def train(config: TrainConfig) -> Run:
    """Train a model in a new folder."""
    clock = Clock()
    with ranks() as mine:
        run = _new_run(_anchored(config), mine)
        with _held(run, mine):
            try:
                # As the first rank has written it: other ranks may have chosen other sizes.
                return _begin(run, run.read_config(), clock, mine)
            except TrafoError:
                if mine.is_first and not CheckpointStore(run.checkpoint_folder).steps():
                    run.remove()  # nothing was done: the same name can be used again
                raise


def train_on(
    text: str | PathLike[str] | Sequence[str | PathLike[str]], settings: Mapping[str, Any]
) -> Run:
    """Train on text files, with sizes that suit them unless the settings say otherwise."""
    texts = [text] if isinstance(text, str | PathLike) else text
    given = {**settings, "text": [str(path) for path in texts]}
    asked = with_values(TrainConfig(), given, "trafo.train")
    return train(with_values(choose(asked), given, "trafo.train"))


def resume(path: str | Path, config: TrainConfig | None = None) -> Run:
    """Continue a run from its newest checkpoint; `config` replaces the one it has."""
    clock = Clock()
    run = Run.open(path)
    with ranks() as mine, _held(run, mine):
        before = run.read_config()
        config = config or before
        if not CheckpointStore(run.checkpoint_folder).steps():  # killed before the first one
            return _begin(run, config, clock, mine)
        # What one optimizer has kept of the past means nothing to another.
        name, had = config.optimizer.name, before.optimizer.name
        what = f"optimizer.name is {name}, this run has {had}"
        require(name == had, what, "leave it as it is, or start a new run")
        trainer = Trainer(build(config, mine), run, clock)
        state = trainer.state
        return _fit(trainer, f"resuming at step {state.step:,} of {state.plan.steps:,}")


def _begin(run: Run, config: TrainConfig, clock: Clock, mine: Ranks) -> Run:
    """From the config to the end of its run."""
    training = build(config, mine)
    plan = make_plan(training, clock)
    if mine.is_first:
        training.task.save_tokenizer(run.tokenizer_folder)
        run.mark_latest()
    trainer = Trainer(training, run, clock, plan)
    data = training.task.describe(plan.steps)
    return _fit(trainer, f"{run.path}: {training.num_parameters:,} parameters, {data}")


def _fit(trainer: Trainer, opening: str) -> Run:
    if trainer.ranks.is_first:
        trainer.run.write_config(trainer.config)
        trainer.store.remove_leftovers()
    trainer.listener.note(opening)
    signal = trainer.fit()
    return Run(trainer.run.path, trainer.state, signal)


def _held(run: Run, mine: Ranks) -> AbstractContextManager[None]:
    """The folder belongs to this training alone while the block runs."""
    return run.locked() if mine.is_first else nullcontext()


def _new_run(config: TrainConfig, mine: Ranks) -> Run:
    """Made by the first rank, with its config in it."""
    path = str(Run.new(config).path) if mine.is_first else ""
    return Run(mine.agree_on(path))


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
        cache=data.cache.resolve(),
    )
    return dataclasses.replace(
        config,
        text=texts(config.text),
        pairs=texts(config.pairs),
        validation=texts(config.validation),
        data=anchored,
    )
