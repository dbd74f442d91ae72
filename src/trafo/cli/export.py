"""`trafo export`: a trained model and its tokenizer, for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trafo.cli.arguments import LATEST, RunPath
from trafo.errors import StorageError, require_at_least
from trafo.runtime.console import show


@dataclass(frozen=True, kw_only=True)
class Options:
    """Export a model and its tokenizer for transformers (hf), llama.cpp (gguf) or llama2.c.

    The export is read back, and the largest difference of logits is stored in a parity file.
    """

    run: RunPath = LATEST
    """a run, one of its checkpoints, or another model that trafo reads"""
    out: Path
    """the folder (hf) or file to write"""
    to: Literal["hf", "gguf", "llama2c"] | None = None
    """format; None: by the name: .gguf is gguf, .bin is llama2c, others are hf"""
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """precision of the stored weights"""
    tokenizer: bool = True
    """export the tokenizer too"""
    best: bool = False
    """use the checkpoint with the lowest validation loss instead of the newest"""
    overwrite: bool = False
    """replace what is at --out"""
    threads: int | None = None
    """CPU threads; None: all cores"""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--threads": self.threads})


def run(options: Options) -> None:
    """Load, write, compare."""
    from trafo.checkpoint.bundle import load_bundle
    from trafo.checkpoint.export import export_model
    from trafo.fast.threads import torch_threads

    if options.out.exists() and not options.overwrite:
        hint = "--overwrite replaces it, or give another name"
        raise StorageError("already exists", where=str(options.out), hint=hint)
    torch_threads(options.threads)
    bundle = load_bundle(options.run, best=options.best, fast=False).require_language_model()
    tokenizer = bundle.tokenizer if options.tokenizer else None
    parity = export_model(
        bundle.model, options.out, tokenizer=tokenizer, to=options.to, dtype=options.dtype
    )
    show(f"written   {options.out} ({parity.format}), from {bundle.source}")
    show(
        f"compared  as trafo reads it, on {parity.tokens_compared} tokens: logits differ by "
        f"at most {parity.largest_logit_difference:.2g} "
        f"(largest logit {parity.largest_logit:.3g}), "
        f"{100 * parity.same_most_likely_token:.1f} % of the most likely tokens are the same"
    )
