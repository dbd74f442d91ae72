"""`trafo tokenizer train`: text in, a tokenizer's folder out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trafo.cli.arguments import (
    Errors,
    OptionalInt,
    OptionalString,
    Place,
    Strings,
    TextPaths,
)
from trafo.cli.tokenizer.existing import COUNTS, refuse_other_training
from trafo.errors import InputError, require_at_least
from trafo.runtime.console import command, show
from trafo.runtime.remote import local_copy_of, send_folder
from trafo.runtime.sizes import parse_size

if TYPE_CHECKING:
    from pathlib import Path

    from trafo.tokenizer import Inputs
    from trafo.tokenizer.train import CountElsewhere, Training


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train a byte-level BPE tokenizer on text. Run the same command again to resume it."""

    text: TextPaths
    """files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    vocab_size: int
    """vocabulary size: 256 bytes, the merges, the special tokens"""
    out: Place
    """folder to write the tokenizer to; a path, or a URL such as s3://bucket/tok"""
    special_tokens: Strings = ("<|endoftext|>",)
    """special tokens, never split or merged, such as the end of a document"""
    pattern: str = "gpt2"
    """pre-tokenization: gpt2, gpt4, gpt4o, llama3, whitespace, none, or a regular expression"""
    workers: OptionalInt = None
    """number of threads, or of CPUs of a cluster that --on ray starts; None: all cores"""
    on: OptionalString = None
    """Ray cluster to work on: ray (on this machine), ray://host:port or host:port; None: threads"""
    max_memory: OptionalString = None
    """memory limit for training, beyond the program itself, such as 2GB"""
    field: str = "text"
    """field that holds the text in JSON lines and Parquet"""
    errors: Errors = "strict"
    """invalid UTF-8: stop (strict), or read U+FFFD (replace)"""
    overwrite: bool = False
    """replace a tokenizer that was trained differently or has another size; counts of the same
    text are used again"""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--workers": self.workers})


def run(options: Options) -> None:
    """Train, save, and print a summary."""
    from trafo.cli.tokenizer.training_summary import training_summary
    from trafo.tokenizer import open_inputs

    folder = local_copy_of(options.out)
    resumed = (folder / COUNTS).exists()
    inputs = open_inputs(options.text, options.field, options.errors)
    max_memory = None if options.max_memory is None else parse_size(options.max_memory)
    training = train(options, inputs, folder, max_memory)
    send_folder(folder, options.out, last="trafo.json")
    show(
        training_summary(
            training, options.vocab_size, inputs, resumed=resumed, max_memory=max_memory
        ),
        "",
        f"saved in {options.out}, try",
        f"  {command('tokenizer', 'report', options.out, *options.text)}",
    )


def train(options: Options, inputs: Inputs, folder: Path, max_memory: int | None) -> Training:
    """Train and save in a folder of this machine."""
    from trafo.tokenizer.formats.load import save_folder
    from trafo.tokenizer.train import deciding_facts, train_tokenizer

    facts = deciding_facts(inputs, options.pattern, options.special_tokens)
    facts["vocab_size"] = options.vocab_size
    if not options.overwrite:
        refuse_other_training(folder, facts)
    if not inputs.first_characters(1):
        raise InputError("the text is empty", where=str(inputs.files[0].path))
    with _elsewhere(options) as elsewhere:
        training = train_tokenizer(
            inputs,
            options.vocab_size,
            options.special_tokens,
            pattern=options.pattern,
            num_workers=options.workers,
            max_memory=max_memory,
            work_dir=folder / COUNTS,
            elsewhere=elsewhere,
        )
    # Only what is the same in every run, so that the folder is too.
    for name in ("num_bytes", "num_words", "num_distinct_words"):
        facts[name] = getattr(training, name)
    save_folder(training.spec, folder, training=facts)
    return training


def _elsewhere(options: Options) -> AbstractContextManager[CountElsewhere | None]:
    if options.on is None:
        return nullcontext()
    from trafo.cluster.counting import counting_on

    return counting_on(options.on, options.workers)
