"""A path -> a model and its tokenizer: all that is needed to use it.

The path may be a run (its newest checkpoint is taken), one checkpoint of a run, a Hugging Face
folder, a GGUF file, or a llama2.c file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from torch.nn import Module

from trafo.checkpoint.convert.gguf_file import load_gguf, read_gguf_config
from trafo.checkpoint.convert.gguf_reader import GGUF
from trafo.checkpoint.convert.hugging_face import load_hugging_face, read_hugging_face_config
from trafo.checkpoint.convert.llama2c import load_llama2c, read_llama2c_config
from trafo.checkpoint.convert.weights import fill, skeleton
from trafo.checkpoint.locate import (
    CHECKPOINTS,
    RUN_CONFIG,
    TOKENIZER,
    kind_of,
    load_tokenizer,
)
from trafo.checkpoint.store import CheckpointStore, read_state, read_step, read_weights
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.errors import ConfigError, FormatError, InputError, require_path
from trafo.fast import accelerate
from trafo.models import CausalLM, ModelConfig, SequenceModel, config_from, model_name
from trafo.runtime.console import say
from trafo.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Bundle:
    """A model and what is needed to use it."""

    model: Any
    """a `SequenceModel`"""
    tokenizer: Any
    """a `Tokenizer`; of a translation model, a `PairTokenizer`"""
    source: Path
    """the folder or file that the weights came from"""
    step: int | None = None
    """training steps, if known"""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """the beam search settings of a translation model's run, as its config has them"""

    def require_language_model(self) -> Bundle:
        """Return itself, but refuse a translation model."""
        return self._require(False, "is a translation model, not a language model", "translate")

    def require_translation_model(self) -> Bundle:
        """Return itself, but refuse a language model."""
        return self._require(True, "is a language model, not a translation model", "generate")

    def _require(self, has_source: bool, what: str, verb: str) -> Bundle:
        if self.model.has_source != has_source:
            raise InputError(what, where=str(self.source), hint=f"use it with `trafo {verb}`")
        return self


def load_bundle(path: str | PathLike[str], *, best: bool = False, fast: bool = True) -> Bundle:
    """Load a model and its tokenizer from a run, a checkpoint or another program's files.

    `best` takes the checkpoint with the lowest validation loss instead of the newest; without
    `fast` the model runs its readable layers.
    """
    require_path(path)
    path = Path(path)
    kind = kind_of(path)
    if kind in ("run", "checkpoint"):
        bundle = _from_run(path, best)
    else:
        loaders = {"hugging-face": load_hugging_face, "gguf": load_gguf, "llama2c": load_llama2c}
        # The tokenizer first: if it is missing, the error comes before the weights are read.
        tokenizer = load_tokenizer(path)
        bundle = Bundle(loaders[kind](path), tokenizer, path)
    if fast:
        accelerate(bundle.model)
    return bundle


def load(path: str | PathLike[str], *, best: bool = False) -> tuple[CausalLM, Tokenizer]:
    """The model at `path` and its tokenizer: `model, tokenizer = trafo.load("runs/latest")`."""
    bundle = load_bundle(path, best=best).require_language_model()
    return bundle.model, bundle.tokenizer


def load_config(path: str | Path) -> ModelConfig:
    """The config of the model at `path`, without its weights."""
    path = Path(path)
    kind = kind_of(path)
    if kind == "run":
        return CheckpointStore(path / CHECKPOINTS).newest_read_by(_checkpoint_config)
    readers: dict[str, Callable[[Path], ModelConfig]] = {
        "checkpoint": _checkpoint_config,
        "hugging-face": read_hugging_face_config,
        "gguf": lambda file: read_gguf_config(GGUF.open(file)),
        "llama2c": read_llama2c_config,
    }
    return readers[kind](path)


def describe_model(model: Module, config: ModelConfig) -> dict[str, Any]:
    """Registered name, class and config of a model, as a checkpoint stores them."""
    return {"name": model_name(config), "class": _class_name(model), "fields": asdict(config)}


def refuse_other_class(about: dict[str, Any], model: Module, path: Path) -> None:
    """Raise if a checkpoint says that another class than the model's has written it."""
    written_by, ours = str(about.get("class", "")), _class_name(model)
    # Our own classes may move to another module from version to version.
    is_same = written_by == ours or (
        written_by.startswith("trafo.")
        and ours.startswith("trafo.")
        and written_by.rpartition(".")[2] == ours.rpartition(".")[2]
    )
    if written_by and not is_same:
        raise InputError(
            f"was written by the model class {written_by}, but {about['name']} is {ours} here",
            where=str(path),
            hint="load it in a program that uses the same class",
        )


def _class_name(model: Module) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def _from_run(path: Path, best: bool) -> Bundle:
    """From a checkpoint, or from the best, the average or the newest one of a run."""
    if kind_of(path) == "checkpoint":
        return _from_checkpoint(path)
    store = CheckpointStore(path / CHECKPOINTS)
    step = store.best_step if best else None
    if step is not None:
        return _from_checkpoint(store.path(step))
    if best:
        say(f"{store.folder}: no checkpoint is marked as the best, using the newest")
    average, newest = store.average_path, max(store.steps(), default=-1)
    try:
        if average.is_dir() and read_step(average) == newest:  # none came after it
            found = _from_checkpoint(average)
            say("using the average of the newest checkpoints")
            return found
    except FormatError as error:
        say(f"{error}; using the newest checkpoint instead of their average")
    return store.newest_read_by(_from_checkpoint)


def _from_checkpoint(path: Path) -> Bundle:
    model, step = _model(path), read_step(path)
    if not model.has_source:
        return Bundle(model, load_tokenizer(path), path, step)
    tokenizer = PairTokenizer.load(path.parent.parent / TOKENIZER)
    return Bundle(model, tokenizer, path, step, _decoding(path))


def _decoding(path: Path) -> Mapping[str, Any]:
    """From the run's config, else from the checkpoint's copy of it."""
    from trafo.config import read_yaml

    saved: Mapping[str, Any] = read_state(path).get("config", {})
    file = path.parent.parent / RUN_CONFIG
    with suppress(ConfigError):  # damaged: `trafo resume` restores it
        saved = read_yaml(file) if file.is_file() else saved
    decoding: Mapping[str, Any] = saved.get("decoding", {})
    return decoding


def _model(path: Path) -> SequenceModel:
    weights, about = read_weights(path)
    config = _described(about, path)
    try:
        refuse_other_class(about, skeleton(config), path)
        return fill(config, weights)
    except FormatError as error:
        raise FormatError(error.what, where=str(path), hint=error.hint) from None


def _checkpoint_config(path: Path) -> ModelConfig:
    return _described(read_weights(path)[1], path)


def _described(about: dict[str, Any], path: Path) -> ModelConfig:
    try:
        return config_from(about["name"], about["fields"])
    except (KeyError, TypeError, ConfigError) as error:
        raise FormatError(f"does not describe a model: {error}", where=str(path)) from None
