"""A run: its folder, the files in it, and the state of its training.

runs/tinystories/
  config.yaml      the resolved config: what `trafo resume` reads
  tokenizer/       the tokenizer
  checkpoints/     see `trafo.checkpoint.store`
  metrics.jsonl    metrics by step
  samples.txt      samples generated during training
  loss.png         the loss curve
  tensorboard/     the same metrics for TensorBoard
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from signal import Signals
from typing import Any

from trafo.checkpoint.bundle import Bundle, load_bundle
from trafo.checkpoint.locate import CHECKPOINTS, MANIFEST, RUN_CONFIG, TOKENIZER
from trafo.checkpoint.store import CheckpointStore, read_state
from trafo.config import fields_table, flatten, load, nest, parse_flags, to_yaml, with_values
from trafo.errors import ConfigError, FormatError, InputError, StorageError, did_you_mean
from trafo.models import CausalLM
from trafo.runtime.atomic import (
    ABANDONED,
    LOCK,
    atomic_folder,
    atomic_write,
    is_leftover,
    remove,
    remove_leftovers_in,
    storage_errors,
)
from trafo.runtime.console import say
from trafo.runtime.sizes import parse_duration
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.training.config import TrainConfig
from trafo.training.metrics import Record, newest_validation, read_metrics
from trafo.training.plan import Plan

RUNS = Path("runs")
LATEST = "latest"
_METRICS, _SAMPLES = "metrics.jsonl", "samples.txt"
_CURVE, _TENSORBOARD = "loss.png", "tensorboard"
_PARTS = (RUN_CONFIG, TOKENIZER, CHECKPOINTS, LOCK, _METRICS, _SAMPLES, _CURVE, _TENSORBOARD)


@dataclass
class TrainerState:
    """The trainer's own state in a checkpoint, beside tensors; changes from step to step."""

    plan: Plan
    step: int = 0
    """updates made so far; also the position in the data, which follows from it"""
    tokens: int = 0
    """target tokens trained on so far"""
    seconds: float = 0.0
    """wall-clock time of all sessions of this run"""
    attempt: int = 0
    """times it went back to a checkpoint after a loss that was not finite; seeds the batches"""
    validation_loss: float | None = None
    best_loss: float = math.inf
    """the lowest validation loss of a saved checkpoint"""
    best_metric: float | None = None
    """the lowest early-stopping metric so far: minus BLEU, or the validation loss"""
    stale_validations: int = 0
    """validations since then"""
    records: int = 0
    """records in metrics.jsonl so far"""

    def to_json(self) -> dict[str, Any]:
        """JSON has no infinity: no best loss yet is null."""
        best = None if math.isinf(self.best_loss) else self.best_loss
        return dataclasses.asdict(self) | {"best_loss": best}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainerState:
        """The inverse of `to_json`."""
        try:
            plan, best = Plan(**values["plan"]), values["best_loss"]
            return cls(**values | {"plan": plan, "best_loss": math.inf if best is None else best})
        except (KeyError, TypeError) as error:
            raise FormatError(f"a checkpoint's state.json is incomplete: {error}") from None


@dataclass(frozen=True)
class Picture:
    """A PNG file that a notebook displays."""

    path: Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


class Run:
    """The folder of a run, by the names of its parts; what `train` and `resume` return."""

    def __init__(
        self, path: str | Path, state: TrainerState | None = None, stopped_by: Signals | None = None
    ) -> None:
        self.path = Path(path)
        self.state = state
        """the final state of training; None for a run that was only opened"""
        self.stopped_by = stopped_by
        """the signal that stopped it early; None if it completed its plan"""
        self._loaded: tuple[list[tuple[str, int]], Any] | None = None
        self.config_file = self.path / RUN_CONFIG
        self.tokenizer_folder = self.path / TOKENIZER
        self.checkpoint_folder = self.path / CHECKPOINTS
        self.metrics_file = self.path / _METRICS
        self.samples_file = self.path / _SAMPLES
        self.curve_file = self.path / _CURVE
        self.tensorboard_folder = self.path / _TENSORBOARD

    @classmethod
    def new(cls, config: TrainConfig) -> Run:
        """Create the folder of a new run, with its config; an error if it is in use."""
        run = cls(config.out or _free_name(config))
        path = run.path
        if run.config_file.exists():
            raise _taken(path, "already holds a run", f"resume it with `trafo resume {path}`")
        if not _is_free(path):
            raise StorageError("is not empty", where=str(path), hint="choose another --out")
        with storage_errors(path, "making the folder"):
            path.parent.mkdir(parents=True, exist_ok=True)
        _tidy(path.parent)
        if path.is_dir():  # left by a run that was killed before it had a config
            for leftover in path.iterdir():
                remove(leftover)
        # The folder never exists without its config.
        try:
            with atomic_folder(path, marker=RUN_CONFIG, replace=False) as folder:
                cls(folder).write_config(config)
        except StorageError:
            if not run.config_file.exists():
                raise
            if config.out is None:  # another process was faster: take the next name
                return cls.new(config)
            what = "another process is training there, it was faster"
            raise _taken(path, what, "wait until it ends") from None
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """An existing run."""
        run = cls(path)
        if not run.config_file.is_file() and not run.saved_settings():
            what = "not a run: no config.yaml in it" if run.path.exists() else "no such run"
            if run.path.is_symlink() and not run.path.exists():
                what = f"is a link to {run.path.readlink()}, which does not exist"
            raise InputError(what, where=str(path), hint="`trafo runs` lists the runs")
        return run

    def __fspath__(self) -> str:
        """A run can be passed wherever its path can."""
        return str(self.path)

    def __repr__(self) -> str:
        step = "" if self.state is None else f", step {self.state.step:,}"
        return f"Run({str(self.path)!r}{step})"

    def _load(self) -> Bundle:
        """The newest checkpoint, kept until there is a newer one, whoever has trained it."""
        store = CheckpointStore(self.checkpoint_folder)
        newest = [store.path(step) for step in store.steps()[-1:]]
        files = [path / MANIFEST for path in (*newest, store.average_path)]
        written = [(str(file), file.stat().st_mtime_ns) for file in files if file.is_file()]
        if self._loaded is None or self._loaded[0] != written:
            self._loaded = written, load_bundle(self.path)
        return self._loaded[1]

    @property
    def model(self) -> CausalLM:
        """The model of the newest checkpoint, ready to be used."""
        model: CausalLM = self._load().require_language_model().model
        return model

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        tokenizer: Tokenizer = self._load().require_language_model().tokenizer
        return tokenizer

    def generate(self, prompt: str, **settings: Any) -> str:
        """A completion of the prompt; settings are those of `trafo.generate.GenerationConfig`."""
        from trafo.generate import GenerationConfig, generate

        known = {field.name for field in dataclasses.fields(GenerationConfig)}
        if unknown := sorted(settings.keys() - known):
            hint = did_you_mean(unknown[0], sorted(known))
            raise ConfigError(f"run.generate: unknown key {unknown[0]}", hint=hint)
        config = GenerationConfig(**{"kernel": "auto", **settings})
        return generate(self.model, self.tokenizer, [prompt], config)[0].text

    def translate(self, sentences: Sequence[str], **settings: Any) -> list[str]:
        """Translations of sentences; settings of `BeamConfig` replace the run's `decoding` ones."""
        from trafo.generate.translate import search_settings, translate

        bundle = self._load().require_translation_model()
        config = search_settings(bundle, **settings)
        found = translate(bundle.model, bundle.tokenizer, sentences, config)
        return [best[0].text for best in found]

    def resume(self, **settings: Any) -> Run:
        """Resume from the newest checkpoint; returns this run, with its new state.

        `budget="5m"` trains for five more minutes, `steps=` to so many steps from the start.
        """
        from trafo.training.start import resume

        config = with_values(self.read_config(), settings, "run.resume")
        if "budget" in settings:
            config = self.with_more_time(config)
        done = resume(self.path, config)
        self.state, self.stopped_by = done.state, done.stopped_by
        return self

    def with_more_time(self, config: TrainConfig) -> TrainConfig:
        """`config`, whose budget counts from now on, with one from the start of the run."""
        if config.budget is None:
            return config
        seconds = self._saved_state().get("seconds", 0.0) + parse_duration(config.budget)
        return dataclasses.replace(config, budget=f"{seconds:.3f}s")

    def plot(self) -> Picture:
        """The loss curve, which a notebook displays; also saved as the run's `loss.png`."""
        from trafo.training.curve import draw_curves

        draw_curves({self.path.name: self.metrics}, self.curve_file)
        return Picture(self.curve_file)

    def refuse_links(self) -> None:
        """Refuse symbolic links, so that nothing outside of the run is written to."""
        for part in (self.path / name for name in _PARTS):
            for path in (part, *part.rglob("*")):
                if path.is_symlink():
                    raise InputError(
                        "is a symbolic link: training would write to its target",
                        where=str(path),
                        hint="put the file or folder itself there",
                    )

    @property
    def metrics(self) -> list[Record]:
        """All records so far; empty if training has not begun."""
        return read_metrics(self.metrics_file) if self.metrics_file.exists() else []

    @property
    def measured(self) -> Record | None:
        """The newest validation; of the last step, the one on the most tokens."""
        return newest_validation(self.metrics)

    def read_config(self, flags: list[str] | None = None, prog: str | None = None) -> TrainConfig:
        """The run's config, with flags over it; if the file is damaged, that of a checkpoint."""
        if damage := self._damage():
            known = {setting.key for setting in fields_table(TrainConfig)}
            saved = {key: value for key, value in self.saved_settings().items() if key in known}
            if saved:
                say(f"{damage}; using the copy of it in the newest checkpoint")
                config = with_values(TrainConfig(), nest(saved), str(self.checkpoint_folder))
                return parse_flags(TrainConfig, flags or [], default=config, prog=prog)
        return load(TrainConfig, self.config_file, flags or [], prog=prog)

    def _damage(self) -> str:
        """What is wrong with the config file: unreadable, or cut off; empty if nothing is."""
        from trafo.config import read_yaml

        try:
            settings = flatten(read_yaml(self.config_file))
        except ConfigError as error:
            return str(error)
        known = [setting.key for setting in fields_table(TrainConfig)]
        missing = [key for key in known if key not in settings]
        # Keys that an older version did not have, and misspelt ones, are no damage.
        if len(missing) <= len(settings.keys() - known):
            return ""
        saved = self.saved_settings()
        missing = [key for key in missing if key in saved]
        what = f"{self.config_file}: {len(missing)} settings are missing, the first is"
        return f"{what} {missing[0]}" if missing else ""

    def saved_settings(self) -> dict[str, Any]:
        """The settings that the newest checkpoint was made with, by dotted key; old ones: none."""
        return flatten(self._saved_state().get("config", {}))

    def _saved_state(self) -> dict[str, Any]:
        store = CheckpointStore(self.checkpoint_folder)
        try:
            return store.newest_read_by(read_state, report=lambda text: None)
        except InputError:  # there is none; who needs one says so
            return {}

    def write_config(self, config: TrainConfig) -> None:
        """Replace the run's config."""
        with atomic_write(self.config_file, "w") as file:
            file.write(to_yaml(config))

    def remove(self) -> None:
        """Delete a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Delete temporary files of a killed run. Only for the process that trains here."""
        for folder in (self.path, self.tokenizer_folder):
            remove_leftovers_in(folder)

    def mark_latest(self, folder: Path | None = None) -> None:
        """Point the link `latest` at it, in a folder around it: by default beside it."""
        folder = folder or self.path.parent
        link = folder / LATEST
        if link.exists() and not link.is_symlink():
            return  # a folder that the user has made
        # Renamed over the old link, so that there is one at all times.
        new = link.with_name(f".{LATEST}.{secrets.token_hex(6)}.tmp")
        with storage_errors(link):
            new.symlink_to(self.path.relative_to(folder))
            new.replace(link)


def _taken(path: Path, what: str, hint: str) -> StorageError:
    return StorageError(what, where=str(path), hint=f"{hint}, or choose another --out")


def _free_name(config: TrainConfig) -> Path:
    source = next(iter(config.text + config.pairs), str(config.data.tokens or "run"))
    stem = Path(source).name.split(".")[0].strip("*")
    stem = "run" if stem in ("", LATEST) else stem
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(RUNS / name for name in names if _is_free(RUNS / name))


def _is_free(path: Path) -> bool:
    """Whether a run can begin there: it holds nothing but temporary files of a killed one."""
    if not path.is_dir():
        return not path.exists()
    return all(inside.name == LOCK or is_leftover(inside) for inside in path.iterdir())


def _tidy(runs: Path) -> None:
    """Remove what killed or deleted runs have left beside the others."""
    remove_leftovers_in(runs, untouched_for=ABANDONED)
    link = runs / LATEST
    if link.is_symlink() and not link.exists():
        link.unlink(missing_ok=True)
