"""A folder -> a model and its tokenizer: all that is needed to use a run.

A folder may be a run (its newest checkpoint is taken), one checkpoint of a run, or a Hugging Face
folder with a `tokenizer.json` beside its weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trafo.checkpoint.convert import load_hugging_face
from trafo.checkpoint.snapshot import check_weights, restore_weights
from trafo.checkpoint.store import MANIFEST, CheckpointStore, read_weights
from trafo.errors import ConfigError, FormatError, InputError
from trafo.models import CausalLM, ModelConfig, build_model, config_from, model_name
from trafo.tokenizer.tokenizer import Tokenizer

CHECKPOINTS = "checkpoints"
TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class Bundle:
    """What generation and evaluation need."""

    model: CausalLM
    tokenizer: Tokenizer
    source: Path
    """the folder that the weights came from"""
    step: int | None = None
    """how many steps it was trained for, if that is known"""


def load_bundle(path: str | Path, *, best: bool = False) -> Bundle:
    """Load a run, a checkpoint or a Hugging Face folder, ready to be used.

    `best` takes the checkpoint with the lowest validation loss instead of the newest.
    """
    path = Path(path)
    if (path / CHECKPOINTS).is_dir():
        return _from_run(path, best)
    if (path / MANIFEST).is_file():
        return _from_checkpoint(path, path.parent.parent / TOKENIZER)
    if (path / "config.json").is_file():
        model = load_hugging_face(path).eval()
        return Bundle(model, Tokenizer.load(path), path)
    if not path.exists():
        raise InputError("no such run", where=str(path), hint="`trafo runs` lists the runs")
    raise InputError(
        "not a run, a checkpoint or a Hugging Face folder",
        where=str(path),
        hint="give the folder that `trafo train` wrote",
    )


def describe_model(config: ModelConfig) -> dict[str, Any]:
    """What a checkpoint says about its model: enough to build it again."""
    return {"name": model_name(config), "fields": asdict(config)}


def _from_run(path: Path, best: bool) -> Bundle:
    store = CheckpointStore(path / CHECKPOINTS)
    step = store.best_step if best else None
    if step is not None:
        return _from_checkpoint(store.path(step), path / TOKENIZER)
    return store.newest_read_by(lambda newest: _from_checkpoint(newest, path / TOKENIZER))


def _from_checkpoint(path: Path, tokenizer: Path) -> Bundle:
    weights, about = read_weights(path)
    try:
        config = config_from(about["name"], about["fields"])
    except (KeyError, TypeError, ConfigError) as error:
        raise FormatError(f"does not describe a model: {error}", where=str(path)) from None
    # A few bytes from a stranger must not make us ask for more memory than the weights take.
    check_weights(weights, build_model(config, device="meta"))
    model = build_model(config)
    if not isinstance(model, CausalLM):
        raise InputError(f"is a {about['name']}, not a language model", where=str(path))
    restore_weights(weights, model)
    step = int(path.name.rpartition("-")[2])
    return Bundle(model.eval(), Tokenizer.load(tokenizer), path, step)
