"""`trafo train`: text or sentence pairs in, a trained model out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trafo.config import load, parse_flags
from trafo.train.auto import choose
from trafo.train.auto_pairs import choose_for_pairs
from trafo.train.config import TrainConfig as Options

if TYPE_CHECKING:
    from trafo.train.run import Run

__all__ = ["Options", "parse", "run"]

_CONFIG = "--config"


def parse(arguments: list[str], prog: str) -> Options:
    """With `--config FILE` the file's settings, else such as suit the text; then the flags."""
    from trafo.cli.config_flag import take_value

    path = take_value(arguments, _CONFIG)
    if path is not None:
        return load(Options, path, arguments, prog=prog)
    asked = parse_flags(Options, arguments, prog=prog)
    chosen = choose_for_pairs(asked) if asked.pairs else choose(asked)
    return parse_flags(Options, arguments, default=chosen, prog=prog)


def run(options: Options) -> int:
    """Train, and say how it went."""
    from trafo.train.start import train

    return finish(train(options))


def finish(run: Run) -> int:
    """Sum up what came of a run; the exit code, which says whether a signal ended it."""
    from trafo.train.distributed import is_first_process

    if run.stopped_by is not None:
        return 128 + run.stopped_by  # as a shell reports a program that a signal has ended
    if is_first_process():
        _show_summary(run)
    return 0


def _show_summary(run: Run) -> None:
    from trafo.runtime.commands import command
    from trafo.runtime.console import show
    from trafo.runtime.sizes import format_duration

    last = {record["kind"]: record for record in run.metrics}
    if run.state is not None:
        duration = format_duration(run.state.seconds)
        show(f"trained   {run.state.step:,} steps, {run.state.tokens:,} tokens, in {duration}")
    if step := last.get("train"):
        speed, share = step["tokens_per_second"], step["utilisation"]
        show(f"speed     {speed:,.0f} tokens/s, {100 * share:.0f} % of the machine's peak")
    if measured := run.measured:
        show(
            f"measured  loss {measured['loss']:.3f}, perplexity {measured['perplexity']:.1f}, "
            f"{measured['bits_per_byte']:.3f} bits per byte, on {measured['tokens']:,} tokens"
        )
        if "bleu" in measured:
            show(f"BLEU      {measured['bleu']:.1f}, greedy search, on validation sentences")
    show(f"curve     {run.curve_file}")
    if run.read_config().translates:
        show(f"try it    {command('translate', run.path)}")
    else:
        show(f"try it    {command('generate', run.path, '--prompt', '...')}")
