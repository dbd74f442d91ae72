"""A path -> a model and its tokenizer: all that is needed to use it.

The path may be a run (its newest checkpoint is taken), one checkpoint of a run, a Hugging Face
folder, a GGUF file, or a llama2.c file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from trafo.checkpoint.convert.fill import fill
from trafo.checkpoint.convert.gguf_file import load_gguf, read_gguf_config
from trafo.checkpoint.convert.gguf_reader import GGUF
from trafo.checkpoint.convert.hugging_face import load_hugging_face, read_hugging_face_config
from trafo.checkpoint.convert.llama2c import load_llama2c, read_llama2c_config
from trafo.checkpoint.locate import CHECKPOINTS, kind_of, load_tokenizer
from trafo.checkpoint.model_tokenizer import ModelTokenizer
from trafo.checkpoint.store import CheckpointStore, read_weights
from trafo.errors import ConfigError, FormatError, InputError
from trafo.fast import accelerate
from trafo.models import CausalLM, ModelConfig, config_from, model_name


@dataclass(frozen=True)
class Bundle:
    """What generation and evaluation need."""

    model: CausalLM
    tokenizer: ModelTokenizer
    source: Path
    """the folder or file that the weights came from"""
    step: int | None = None
    """how many steps it was trained for, if that is known"""


def load_bundle(path: str | PathLike[str], *, best: bool = False, fast: bool = True) -> Bundle:
    """Load whatever holds a model, ready to be used.

    `best` takes the checkpoint with the lowest validation loss instead of the newest; without
    `fast` the model runs its readable layers.
    """
    bundle = _load(Path(path), best)
    if fast:
        accelerate(bundle.model)
    return bundle


def _load(path: Path, best: bool) -> Bundle:
    kind = kind_of(path)
    if kind == "run":
        return _from_run(path, best)
    if kind == "checkpoint":
        return _from_checkpoint(path)
    loaders = {"hugging-face": load_hugging_face, "gguf": load_gguf, "llama2c": load_llama2c}
    # The tokenizer first: without one, nobody should wait for the weights.
    tokenizer = load_tokenizer(path)
    return Bundle(loaders[kind](path), tokenizer, path)


def load(path: str | PathLike[str], *, best: bool = False) -> tuple[CausalLM, ModelTokenizer]:
    """The model at `path` and its tokenizer: `model, tokenizer = trafo.load("runs/latest")`."""
    bundle = load_bundle(path, best=best)
    return bundle.model, bundle.tokenizer


def load_config(path: str | Path) -> ModelConfig:
    """Only the config of the model at `path`."""
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


def describe_model(config: ModelConfig) -> dict[str, Any]:
    """What a checkpoint says about its model: enough to build it again."""
    return {"name": model_name(config), "fields": asdict(config)}


def _from_run(path: Path, best: bool) -> Bundle:
    store = CheckpointStore(path / CHECKPOINTS)
    step = store.best_step if best else None
    if step is not None:
        return _from_checkpoint(store.path(step))
    return store.newest_read_by(_from_checkpoint)


def _from_checkpoint(path: Path) -> Bundle:
    weights, about = read_weights(path)
    config = _described(about, path)
    try:
        model = fill(config, weights)
    except FormatError as error:
        raise FormatError(error.what, where=str(path), hint=error.hint) from None
    if not isinstance(model, CausalLM):
        raise InputError(f"is a {about['name']}, not a language model", where=str(path))
    step = int(path.name.rpartition("-")[2])
    return Bundle(model, load_tokenizer(path), path, step)


def _checkpoint_config(path: Path) -> ModelConfig:
    return _described(read_weights(path)[1], path)


def _described(about: dict[str, Any], path: Path) -> ModelConfig:
    try:
        return config_from(about["name"], about["fields"])
    except (KeyError, TypeError, ConfigError) as error:
        raise FormatError(f"does not describe a model: {error}", where=str(path)) from None
