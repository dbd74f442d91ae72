"""A path -> what kind of model it is, and its tokenizer. No torch."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Literal

from trafo.errors import FormatError, InputError, TrafoError
from trafo.runtime.remote import local_copy_of
from trafo.tokenizer.formats.load import load_any
from trafo.tokenizer.tokenizer import Tokenizer

CHECKPOINTS = "checkpoints"
TOKENIZER = "tokenizer"
RUN_CONFIG = "config.yaml"
"""all settings of a run"""
MANIFEST = "manifest.json"
TOKENIZER_SUFFIX = ".tokenizer"
"""what the tokenizer's folder beside a llama2.c file is called, after the file's own name"""

LLAMA2C_HEADER = struct.Struct("<7i")
_LATER_VERSIONS = b"24ka"  # their magic number at the start of a file, in the byte order on disk

ModelKind = Literal["run", "checkpoint", "hugging-face", "gguf", "llama2c"]


def find_kind(path: Path) -> ModelKind | None:
    """Find what kind of model is at `path`, if any."""
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


def kind_of(path: Path) -> ModelKind:
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


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a model, or a tokenizer's own folder or file."""
    path = local_copy_of(path)
    match find_kind(path):
        case "run":
            return _of_run(path)
        case "checkpoint":
            return _of_run(path.parent.parent)
        case "hugging-face":
            return _with_markers(path)
        case "gguf":
            from trafo.checkpoint.convert.gguf_reader import GGUF
            from trafo.checkpoint.convert.gguf_tokenizer import read_gguf_tokenizer

            return read_gguf_tokenizer(GGUF.open(path))
        case "llama2c":
            return _with_markers(_beside(path))
        case None:
            return Tokenizer.from_spec(load_any(path))


def _with_markers(folder: Path) -> Tokenizer:
    from trafo.checkpoint.convert.hugging_face_tokenizer import read_hugging_face_tokenizer

    return read_hugging_face_tokenizer(folder)


def _of_run(run: Path) -> Tokenizer:
    try:
        parts = load_any(run / TOKENIZER)
    except TrafoError as error:
        what = f"the run's tokenizer is missing or damaged: {error.what}"
        hint = f"`trafo resume {run}` restores it"
        raise InputError(what, where=str(run / TOKENIZER), hint=hint) from None
    from trafo.checkpoint.convert.hugging_face_tokenizer import read_chat

    template, tokens = read_chat(run)
    return Tokenizer.from_spec(replace(parts, chat_template=template, chat_tokens=tokens))


def _beside(path: Path) -> Path:
    vocab_size = abs(read_llama2c_header(path)[5])
    folder = path.with_name(path.name + TOKENIZER_SUFFIX)
    if not folder.exists():
        theirs = "tokenizer.bin" if vocab_size == 32_000 else f"tok{vocab_size}.bin"
        raise InputError(
            f"needs a tokenizer of {vocab_size:,} tokens: llama2.c's {theirs}, or the folder "
            f"{folder.name} that `trafo export` writes",
            where=str(path),
            hint=f"put the folder beside it (trafo does not read {theirs}, a SentencePiece file)",
        )
    return folder


def read_llama2c_header(path: Path) -> tuple[int, ...]:
    """dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size and seq_len of a llama2.c file."""
    with path.open("rb") as file:
        header = file.read(LLAMA2C_HEADER.size)
    if header.startswith(_LATER_VERSIONS):
        raise FormatError("a later llama2.c format", where=str(path), hint="export with version 0")
    if len(header) < LLAMA2C_HEADER.size:
        raise FormatError("too short for a llama2.c model", where=str(path))
    sizes = LLAMA2C_HEADER.unpack(header)
    if min(*sizes[:5], abs(sizes[5]), sizes[6]) < 1 or sizes[0] > 2**20:
        raise FormatError("not a llama2.c model, its header makes no sense", where=str(path))
    return sizes
