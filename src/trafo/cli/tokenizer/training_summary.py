"""The summary of a training: times and rates, memory, and bytes per token."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from trafo.cli.tokenizer.report_tables import clipped
from trafo.runtime.console import dim, plain_table
from trafo.runtime.sizes import format_duration, format_rate, format_size
from trafo.tokenizer.inputs import Inputs
from trafo.tokenizer.kernels.arrays import NUM_BYTES
from trafo.tokenizer.report.readable import readable
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.tokenizer.train import Training

_SAMPLE = 4_000_000  # characters
_MEMORY_PER_CHARACTER = 64  # bytes to encode them, and some to spare


def training_summary(
    training: Training,
    vocab_size: int,
    inputs: Inputs,
    *,
    resumed: bool,
    max_memory: int | None = None,
) -> Table:
    """Times, rates and sizes; a small text may not give all of the requested `vocab_size`.

    `max_memory`, in bytes, also limits the sample of the text that is encoded here.
    """
    spec = training.spec
    table = plain_table("lrl")
    for phase, seconds in training.seconds.items():
        rate = "" if resumed else _rate(training, phase, seconds)
        table.add_row(phase, format_duration(seconds), dim(rate))
    table.add_row("peak memory", format_size(training.peak_memory))
    of_text = f"of {training.num_words:,} words, {format_size(training.num_bytes)}"
    table.add_row("distinct words", f"{training.num_distinct_words:,}", dim(of_text))
    table.add_row("tokens", f"{len(spec.vocab):,}", dim(_kinds(training, vocab_size)))
    table.add_row("longest token", *_longest(training))
    table.add_row("bytes per token", *_compression(training, inputs, max_memory))
    return table


def _rate(training: Training, phase: str, seconds: float) -> str:
    if phase == "counting":
        return f"{format_size(training.num_bytes / seconds)}/s"
    if phase == "merging":
        return format_rate(len(training.spec.merges) / seconds, "merges")
    return ""


def _kinds(training: Training, vocab_size: int) -> str:
    num_merges, num_special = len(training.spec.merges), len(training.spec.special_tokens)
    kinds = f"{NUM_BYTES} bytes, {num_merges:,} merges, {num_special} special"
    if NUM_BYTES + num_merges + num_special < vocab_size:
        return f"{kinds}; no pairs are left"
    return kinds


def _longest(training: Training) -> tuple[str, Text]:
    tokens = [left + right for left, right in training.spec.merges]
    longest = max(tokens, key=len, default=b"")
    return f"{len(longest)} bytes", Text(clipped(readable(longest), 40))


def _compression(training: Training, inputs: Inputs, max_memory: int | None) -> tuple[str, Text]:
    most = _SAMPLE if max_memory is None else max_memory // 4 // _MEMORY_PER_CHARACTER
    sample = inputs.first_characters(min(_SAMPLE, most))
    num_bytes = len(sample.encode())
    num_tokens = len(Tokenizer.from_spec(training.spec).encode_array(sample))
    where = "" if num_bytes == training.num_bytes else f"in the first {format_size(num_bytes)}"
    return f"{num_bytes / max(1, num_tokens):.2f}", dim(where)
