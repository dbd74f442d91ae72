"""Start a new run, or resume one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from trafo.checkpoint.bundle import load_config
from trafo.checkpoint.store import CheckpointStore
from trafo.config import convert, flatten, to_tree, to_yaml
from trafo.errors import TrafoError, require
from trafo.runtime.atomic import atomic_write, lock_folder
from trafo.training.auto.resolve import print_settings, resolve_config
from trafo.training.build import build
from trafo.training.config import TrainConfig, can_change
from trafo.training.distributed import Ranks, ranks
from trafo.training.loop import Trainer
from trafo.training.machine import dtype_of
from trafo.training.plan import Clock, make_plan
from trafo.training.report import Listen, Reporter
from trafo.training.run import Run
from trafo.training.tasks.task import Task


def train(config: TrainConfig, listen: Listen = Reporter) -> Run:
    """Train a model in a new folder; `listen` makes its reporter."""
    clock = Clock()
    with ranks() as mine:
        run = _new_run(make_portable(config), mine)
        with _run_lock(run, mine):
            try:
                # As the first rank has written it: other ranks may have chosen other sizes.
                return _fit(*_new_trainer(run, run.read_config(), clock, mine, listen))
            except TrafoError:
                if mine.is_first and not CheckpointStore(run.checkpoint_folder).steps():
                    run.remove()  # nothing was done: the same name can be used again
                raise


def train_on(
    text: str | PathLike[str] | Sequence[str | PathLike[str]], settings: Mapping[str, Any]
) -> Run:
    """Train on text files, with automatic settings unless given."""
    texts = [text] if isinstance(text, str | PathLike) else text
    overrides = to_tree({**settings, "text": [str(path) for path in texts]})
    config = resolve_config(convert(TrainConfig, overrides, "trafo.train"))
    print_settings(config)
    return train(config)


def resume(path: str | Path, config: TrainConfig | None = None, listen: Listen = Reporter) -> Run:
    """Resume a run from its newest checkpoint; `config` replaces its own."""
    clock = Clock()
    run = Run.open(path)
    run.refuse_links()
    with ranks() as mine, _run_lock(run, mine):
        config = make_portable(config or run.read_config())
        # Else it was killed before its first checkpoint, and starts anew.
        has_begun = CheckpointStore(run.checkpoint_folder).steps(complete=False)
        changes = ""
        if has_begun:
            had = run.saved_settings() or _settings_before(run)
            config = _replace_budget(config, had)
            changes = _describe_changes(config, had)
        with _store_config(config, run, mine):
            start = _trainer_from_checkpoint if has_begun else _new_trainer
            trainer, opening = start(run, config, clock, mine, listen)
        return _fit(trainer, opening + changes)


def _settings_before(run: Run) -> dict[str, Any]:
    """Of a run whose checkpoints hold no config: its file, and what they say of their model."""
    config = run.read_config()
    model = to_tree(load_config(run.path))
    return flatten(to_tree(config)) | flatten({config.branch: model})


def _describe_changes(config: TrainConfig, had: Mapping[str, Any]) -> str:
    """What changes, as part of a message; raise if it is not a setting that may change."""
    settings = flatten(to_tree(config))
    changed = {key: value for key, value in settings.items() if had.get(key, value) != value}
    for key, value in changed.items():
        what = f"{key} is {value}, this run has {had[key]}"
        require(can_change(key), what, f"set it back to {had[key]}, or start a new run")
    shown = [f"{key} {had[key]} -> {value}" for key, value in changed.items()]
    return f"; changed: {', '.join(shown)}" if shown else ""


@contextmanager
def _store_config(config: TrainConfig, run: Run, mine: Ranks) -> Iterator[None]:
    """Store the new config first, so that a kill does not lose it; undo that if it is refused."""
    file = run.config_file
    before = file.read_text(errors="replace") if file.is_file() else to_yaml(config)
    if mine.is_first:
        run.write_config(config)
    try:
        yield
    except TrafoError:
        if mine.is_first:
            with atomic_write(file, "w") as old:
                old.write(before)
        raise


def _replace_budget(config: TrainConfig, had: Mapping[str, Any]) -> TrainConfig:
    """Asking for steps, in a run that had a budget, replaces the budget."""
    if config.steps != had.get("steps") and config.budget == had.get("budget"):
        return dataclasses.replace(config, budget=None)
    return config


def _new_trainer(
    run: Run, config: TrainConfig, clock: Clock, mine: Ranks, listen: Listen
) -> tuple[Trainer, str]:
    """A trainer of a new run, and its opening message."""
    training = build(config, mine)
    plan = make_plan(training, clock)
    if mine.is_first:
        training.task.save_tokenizer(run.tokenizer_folder)
    data = training.task.describe(plan.steps)
    opening = f"{run.path}: {training.num_parameters:,} parameters, {data}"
    return Trainer(training, run, clock, plan, listen), opening


def _trainer_from_checkpoint(
    run: Run, config: TrainConfig, clock: Clock, mine: Ranks, listen: Listen
) -> tuple[Trainer, str]:
    """A trainer at the newest checkpoint, and its opening message."""
    trainer = Trainer(build(config, mine), run, clock, listen=listen)
    state, folder = trainer.state, run.tokenizer_folder
    if mine.is_first and not _holds_tokenizer(folder, trainer.training.task):
        trainer.training.task.save_tokenizer(folder)
        trainer.listener.note(f"{folder} was missing or damaged: restored")
    opening = f"resuming at step {state.step:,} of {state.plan.steps:,}"
    if state.step >= state.plan.steps:
        opening = f"complete at step {state.step:,}: give it more time (--budget) or --steps"
    elif config.budget is not None:
        opening += "; the steps of a budget follow the clock, so bit-exactness does not hold"
    return trainer, opening


def _holds_tokenizer(folder: Path, task: Task) -> bool:
    try:
        task.check_tokenizer(folder)
    except TrafoError:
        return False
    return True


def _fit(trainer: Trainer, opening: str) -> Run:
    if trainer.ranks.is_first:
        trainer.run.remove_leftovers()
        trainer.store.remove_leftovers()
    trainer.listener.note(opening)
    signal = trainer.fit()
    return Run(trainer.run.path, trainer.state, signal)


def _run_lock(run: Run, mine: Ranks) -> AbstractContextManager[None]:
    """Lock the folder for this process while the block runs."""
    return lock_folder(run.path) if mine.is_first else nullcontext()


def _new_run(config: TrainConfig, mine: Ranks) -> Run:
    """Created by the first rank, with its config."""
    path = str(Run.new(config).path) if mine.is_first else ""
    return Run(mine.agree_on(path))


def make_portable(config: TrainConfig) -> TrainConfig:
    """With absolute paths and the precision of this machine, so that it can be resumed anywhere."""

    def absolute(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(Path(text).absolute()) for text in texts)

    data = config.data
    return dataclasses.replace(
        config,
        text=absolute(config.text),
        pairs=absolute(config.pairs),
        validation=absolute(config.validation),
        data=dataclasses.replace(
            data,
            tokens=data.tokens and data.tokens.resolve(),
            tokenizer=data.tokenizer and data.tokenizer.resolve(),
            cache=data.cache.resolve(),
        ),
        machine=dataclasses.replace(config.machine, dtype=dtype_of(config.machine)),
    )
