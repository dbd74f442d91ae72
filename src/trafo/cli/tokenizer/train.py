"""`trafo tokenizer train`: text in, a tokenizer's folder out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trafo.cli.arguments import Errors, Place, Texts
from trafo.errors import InputError, StorageError, require_at_least
from trafo.runtime.console import dim, format_command, plain_table, show
from trafo.runtime.remote import local_copy_of, send_folder
from trafo.runtime.sizes import format_duration, format_rate, format_size, parse_size

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from trafo.tokenizer import Inputs
    from trafo.tokenizer.train import Training

_COUNTS = "counts"  # the folder beside the tokenizer's files that training leaves
_TOKENIZER_FILES = ("trafo.json", "tokenizer.json", "vocab.json", "merges.txt")
_MAX_SAMPLE = 4_000_000  # characters
_MEMORY_PER_CHARACTER = 64  # bytes to encode them, and some to spare


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train a byte-level BPE tokenizer on text. Run the same command again to resume it."""

    text: Texts
    """files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    vocab_size: int
    """vocabulary size: 256 bytes, the merges, the special tokens"""
    out: Place
    """folder to write the tokenizer to; a path, or a URL such as s3://bucket/tok"""
    special_tokens: tuple[str, ...] = ("<|endoftext|>",)
    """special tokens, never split or merged, such as the end of a document"""
    pattern: str = "gpt2"
    """pre-tokenization: gpt2, gpt4, gpt4o, llama3, whitespace, none, or a regular expression"""
    workers: int | None = None
    """number of threads, or of CPUs of a cluster that --on ray starts; None: all cores"""
    on: str | None = None
    """Ray cluster to work on: ray (on this machine), ray://host:port or host:port; None: threads"""
    max_memory: str | None = None
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
    from trafo.tokenizer import open_inputs

    folder = local_copy_of(options.out)
    is_resumed = (folder / _COUNTS).exists()
    inputs = open_inputs(options.text, options.field, options.errors)
    max_memory = None if options.max_memory is None else parse_size(options.max_memory)
    training = _train(options, inputs, folder, max_memory)
    send_folder(folder, options.out, last="trafo.json")
    show(
        _summarize(training, options.vocab_size, inputs, is_resumed, max_memory),
        "",
        f"saved in {options.out}, try",
        f"  {format_command('tokenizer', 'report', options.out, *options.text)}",
    )


def _train(options: Options, inputs: Inputs, folder: Path, max_memory: int | None) -> Training:
    """Train and save in a folder of this machine."""
    from trafo.cluster.counting import counting_on
    from trafo.tokenizer.formats.load import save_folder
    from trafo.tokenizer.train import train_tokenizer, training_fingerprint

    facts = training_fingerprint(inputs, options.pattern, options.special_tokens)
    facts["vocab_size"] = options.vocab_size
    if not options.overwrite:
        _refuse_other_training(folder, facts)
    if not inputs.first_characters(1):
        raise InputError("the text is empty", where=str(inputs.files[0].path))
    cluster = nullcontext() if options.on is None else counting_on(options.on, options.workers)
    with cluster as backend:
        training = train_tokenizer(
            inputs,
            options.vocab_size,
            options.special_tokens,
            pattern=options.pattern,
            num_workers=options.workers,
            max_memory=max_memory,
            work_dir=folder / _COUNTS,
            backend=backend,
        )
    # Only what is the same in every run, so that the folder is too.
    for name in ("num_bytes", "num_words", "num_distinct_words"):
        facts[name] = getattr(training, name)
    save_folder(training.spec, folder, training=facts)
    return training


def refuse_to_replace(path: Path) -> None:
    """Raise if there is a file, or a folder that holds a tokenizer."""
    if path.is_file() or any((path / name).exists() for name in _TOKENIZER_FILES):
        what = "the file already exists" if path.is_file() else "already has a tokenizer"
        hint = "--overwrite replaces it, or give another name"
        raise StorageError(what, where=str(path), hint=hint)


def _refuse_other_training(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise if the folder's tokenizer was not trained as `facts` says.

    What an interrupted training run left may be used by the same run.
    """
    from trafo.tokenizer.count_store import has_counts
    from trafo.tokenizer.formats.load import load_training_facts
    from trafo.tokenizer.train import count_fingerprint

    if folder.exists() and not folder.is_dir():
        raise StorageError("is a file", where=str(folder), hint="give the name of a folder")
    if not (folder / "trafo.json").exists():
        if not has_counts(folder / _COUNTS, count_fingerprint(facts)):
            refuse_to_replace(folder)
        return
    trained = load_training_facts(folder)
    for key, value in facts.items():
        if trained.get(key) != value:
            what = f"has a tokenizer that was trained differently (other {key.replace('_', ' ')})"
            hint = "--overwrite replaces it, or give another folder"
            raise StorageError(what, where=str(folder), hint=hint)


def _summarize(
    training: Training, vocab_size: int, inputs: Inputs, is_resumed: bool, max_memory: int | None
) -> Table:
    """Lay out times, rates and sizes.

    A small text may not give all of the requested `vocab_size`. `max_memory`, in bytes, also limits
    the sample of the text that is encoded here.
    """
    from rich.text import Text

    from trafo.cli.tokenizer.report import clip
    from trafo.tokenizer.report.odd_tokens import format_token
    from trafo.tokenizer.tokenizer import Tokenizer

    spec = training.spec
    table = plain_table("lrl")
    for phase, seconds in training.seconds.items():
        rate = ""
        if phase == "counting" and not is_resumed:
            rate = f"{format_size(training.num_bytes / seconds)}/s"
        elif phase == "merging" and not is_resumed:
            rate = format_rate(len(spec.merges) / seconds, "merges")
        table.add_row(phase, format_duration(seconds), dim(rate))
    table.add_row("peak memory", format_size(training.peak_memory))
    of_text = f"of {training.num_words:,} words, {format_size(training.num_bytes)}"
    table.add_row("distinct words", f"{training.num_distinct_words:,}", dim(of_text))
    kinds = f"256 bytes, {len(spec.merges):,} merges, {len(spec.special_tokens)} special"
    if 256 + len(spec.merges) + len(spec.special_tokens) < vocab_size:
        kinds += "; no pairs are left"
    table.add_row("tokens", f"{len(spec.vocab):,}", dim(kinds))
    longest = max((left + right for left, right in spec.merges), key=len, default=b"")
    table.add_row("longest token", f"{len(longest)} bytes", Text(clip(format_token(longest), 40)))
    most = _MAX_SAMPLE if max_memory is None else max_memory // 4 // _MEMORY_PER_CHARACTER
    sample = inputs.first_characters(min(_MAX_SAMPLE, most))
    num_bytes = len(sample.encode())
    ratio = num_bytes / max(1, len(Tokenizer.from_spec(spec).encode_array(sample)))
    where = "" if num_bytes == training.num_bytes else f"in the first {format_size(num_bytes)}"
    table.add_row("bytes per token", f"{ratio:.2f}", dim(where))
    return table
