"""What came of a run, and what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trafo.runtime.commands import command
from trafo.runtime.console import show
from trafo.runtime.sizes import format_duration
from trafo.train.metrics import read_metrics

if TYPE_CHECKING:
    from trafo.train.loop import Trainer


def summary(trainer: Trainer) -> None:
    """Print it."""
    config, folder, state = trainer.config, trainer.folder, trainer.state
    records = read_metrics(folder.metrics)
    measured = [record for record in records if record["kind"] == "validation"]
    steps = [record for record in records if record["kind"] == "train"]
    tokens = state.step * config.tokens_per_step
    show(f"trained   {state.step:,} steps, {tokens:,} ids, in {format_duration(trainer.seconds)}")
    if steps:
        speed, share = steps[-1]["tokens_per_second"], steps[-1]["utilisation"]
        show(f"speed     {speed:,.0f} tokens/s, {100 * share:.0f} % of the machine's peak")
    if measured:
        last = measured[-1]
        show(
            f"measured  loss {last['loss']:.3f}, perplexity {last['perplexity']:.1f}, "
            f"{last['bits_per_byte']:.3f} bits per byte, on {last['tokens']:,} held-out ids"
        )
    show(f"curve     {folder.curve}")
    show(f"try it    {command('generate', folder.path, '--prompt', '...')}")
