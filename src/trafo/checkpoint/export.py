"""A model and its tokenizer -> files for other programs: Hugging Face, llama.cpp, llama2.c.

Every export is read back and compared; the parity file beside it holds the largest difference of
logits.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal

import torch

from trafo.checkpoint.bundle import load_bundle
from trafo.checkpoint.convert.gguf_file import ExportDtype, save_gguf
from trafo.checkpoint.convert.hugging_face import save_hugging_face
from trafo.checkpoint.convert.llama2c import save_llama2c
from trafo.checkpoint.convert.parity import Parity
from trafo.errors import require, require_path
from trafo.models import CausalLM, is_builtin
from trafo.tokenizer.tokenizer import Tokenizer

ExportFormat = Literal["hf", "gguf", "llama2c"]


def export(
    source: str | PathLike[str] | tuple[CausalLM, Tokenizer],
    path: str | Path,
    *,
    to: ExportFormat | None = None,
    dtype: ExportDtype = "float32",
) -> Parity:
    """Export a run, any other model path, or a model with its tokenizer.

    The name decides the format: .gguf, .bin (llama2.c), else a Hugging Face folder.
    """
    if isinstance(source, tuple):
        model, tokenizer = source
    else:  # readable layers: what is read back has them too, and is compared
        bundle = load_bundle(source, fast=False).require_language_model()
        model, tokenizer = bundle.model, bundle.tokenizer
    return export_model(model, path, tokenizer=tokenizer, to=to, dtype=dtype)


def export_model(
    model: CausalLM,
    path: str | Path,
    *,
    tokenizer: Tokenizer | None = None,
    to: ExportFormat | None = None,
    dtype: ExportDtype = "float32",
) -> Parity:
    """Write `path` in the format `to`, or in the one that its suffix names."""
    require_path(path)
    what = f"a {type(model).__name__} is not one of trafo's models"
    require(is_builtin(model), what, "other programs would compute something else")
    to = to or format_of(path)
    num_ids, known = model.head_weight.shape[0], tokenizer.vocab_size if tokenizer else 0
    what = f"the tokenizer has {known:,} ids, the model {num_ids:,}"
    require(known <= num_ids, what, "use the model's own tokenizer")
    if to == "hf":
        return save_hugging_face(model, path, getattr(torch, dtype), tokenizer=tokenizer)
    if to == "gguf":
        return save_gguf(model, path, tokenizer=tokenizer, dtype=dtype)
    require(dtype == "float32", f"dtype is {dtype}", "llama2.c files hold float32 only")
    return save_llama2c(model, path, tokenizer=tokenizer)


def format_of(path: str | Path) -> ExportFormat:
    """.gguf is GGUF, .bin is llama2.c, anything else is the name of a Hugging Face folder."""
    formats: dict[str, ExportFormat] = {".gguf": "gguf", ".bin": "llama2c"}
    return formats.get(Path(path).suffix, "hf")
