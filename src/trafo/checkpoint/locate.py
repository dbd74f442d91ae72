"""A path -> what kind of model it is, and its tokenizer. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trafo.checkpoint.model_tokenizer import ModelTokenizer
from trafo.errors import InputError, TrafoError
from trafo.runtime.remote import fetched
from trafo.tokenizer.formats.load import load_any

CHECKPOINTS = "checkpoints"
TOKENIZER = "tokenizer"
RUN_CONFIG = "config.yaml"
"""all settings of a run"""
MANIFEST = "manifest.json"
TOKENIZER_SUFFIX = ".tokenizer"
"""what the tokenizer's folder beside a llama2.c file is called, after the file's own name"""

Kind = Literal["run", "checkpoint", "hugging-face", "gguf", "llama2c"]


def find_kind(path: Path) -> Kind | None:
    """What kind of model is at `path`; None: there is none."""
    if (path / CHECKPOINTS).is_dir():
        return "run"
    if (path / MANIFEST).is_file():
        return "checkpoint"
    if (path / "config.json").is_file():
        return "hugging-face"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(4) == b"GGUF":
            return "gguf"
    return "llama2c" if path.suffix == ".bin" else None


def kind_of(path: Path) -> Kind:
    """Like `find_kind`, but there must be a model."""
    kind = find_kind(path)
    if kind is not None:
        return kind
    if not path.exists():
        hint = "`trafo runs` lists the runs, `trafo train TEXT` makes one"
        raise InputError("no such run", where=str(path), hint=hint)
    raise InputError(
        "not a run, a checkpoint, a Hugging Face folder, a GGUF file or a llama2.c file",
        where=str(path),
        hint="give the folder that `trafo train` wrote",
    )


def load_tokenizer(path: str | Path) -> ModelTokenizer:
    """The tokenizer of a model, or a tokenizer's own folder or file."""
    path = fetched(path)
    match find_kind(path):
        case "run":
            return _of_run(path)
        case "checkpoint":
            return _of_run(path.parent.parent)
        case "hugging-face":
            return _with_markers(path)
        case "gguf":
            from trafo.checkpoint.convert.gguf_reader import GGUF
            from trafo.checkpoint.convert.gguf_tokenizer import read_tokenizer

            return read_tokenizer(GGUF.open(path))
        case "llama2c":
            return _with_markers(_beside(path))
        case None:
            return ModelTokenizer.of(load_any(path))


def _with_markers(folder: Path) -> ModelTokenizer:
    from trafo.checkpoint.convert.hugging_face_tokenizer import read_tokenizer

    return read_tokenizer(folder)


def _of_run(run: Path) -> ModelTokenizer:
    try:
        parts = load_any(run / TOKENIZER)
    except TrafoError as error:
        what = f"the run's tokenizer is missing or damaged: {error.what}"
        hint = f"`trafo resume {run}` restores it"
        raise InputError(what, where=str(run / TOKENIZER), hint=hint) from None
    from trafo.checkpoint.convert.hugging_face_tokenizer import read_chat

    return ModelTokenizer.of(parts, None, *read_chat(run))


def _beside(path: Path) -> Path:
    folder = path.with_name(path.name + TOKENIZER_SUFFIX)
    if not folder.exists():
        raise InputError(
            "a llama2.c file holds no tokenizer, and there is none beside it",
            where=str(path),
            hint=f"put a byte-level BPE tokenizer into {folder.name}; SentencePiece is not read",
        )
    return folder
