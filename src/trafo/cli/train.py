"""`trafo train`: text or sentence pairs in, a trained model out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trafo.config import asks_for_help, load, nest, read_flags, to_yaml
from trafo.errors import ConfigError
from trafo.runtime.console import format_command, show
from trafo.runtime.sizes import format_duration, format_rate
from trafo.training.auto.resolve import print_settings, resolve_config
from trafo.training.config import TrainConfig as Options

if TYPE_CHECKING:
    from trafo.training.run import Run

__all__ = ["Options", "parse", "run"]

_CONFIG, _SHOW = "--config", "--show-config"


def parse(arguments: list[str], prog: str) -> tuple[Options, bool]:
    """The settings of `--config FILE`, or settings that suit the text; flags override them.

    Also whether to print them only (`--show-config`).
    """
    only_shown = _SHOW in arguments
    arguments = [argument for argument in arguments if argument != _SHOW]
    path = take_value(arguments, _CONFIG)
    if path is not None or asks_for_help(arguments):
        return load(Options, path, arguments, prog=prog), only_shown
    config = resolve_config(nest(read_flags(Options, arguments)))
    print_settings(config)
    return config, only_shown


def take_value(arguments: list[str], flag: str) -> str | None:
    """Remove a flag and its value; returns the value, or None if the flag is not given."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name != flag:
            continue
        if equals and value:
            del arguments[index]
            return value
        if equals or not "".join(arguments[index + 1 : index + 2]):
            raise ConfigError(f"{flag} needs a value", hint=f"write {flag} FILE")
        value = arguments[index + 1]
        del arguments[index : index + 2]
        return value
    return None


def run(options: tuple[Options, bool]) -> int:
    """Train and print a summary, or print the settings."""
    config, only_shown = options
    if only_shown:
        sys.stdout.write(to_yaml(config))
        return 0
    from trafo.training.start import train

    return finish(train(config))


def finish(run: Run) -> int:
    """Print a summary of the run; returns the exit code, 128 + n if signal n stopped it."""
    from trafo.training.distributed import is_first_process

    if run.stopped_by is not None:
        return 128 + run.stopped_by  # as shells do
    if is_first_process():
        _show_summary(run)
    return 0


def _show_summary(run: Run) -> None:
    from trafo.training.metrics import describe_validation

    last = {record["kind"]: record for record in run.metrics}
    if run.state is not None:
        duration = format_duration(run.state.seconds)
        show(f"trained   {run.state.step:,} steps, {run.state.tokens:,} tokens, in {duration}")
    if step := last.get("train"):
        speed, share = format_rate(step["tokens_per_second"], "tokens"), step["utilisation"]
        show(f"speed     {speed}, {100 * share:.0f} % of the machine's peak")
    if measured := run.measured:
        bits = measured["bits_per_byte"]  # None: only special tokens were predicted
        in_bits = "" if bits is None else f"{bits:.3f} bits per byte, "
        show(
            f"measured  loss {measured['loss']:.3f}, perplexity {measured['perplexity']:.1f}, "
            f"{in_bits}{describe_validation(measured)}"
        )
        if "bleu" in measured:
            show(f"BLEU      {measured['bleu']:.1f}, greedy search, on validation sentences")
    show(f"curve     {run.curve_file}")
    if run.read_config().translates:
        show(f"try it    {format_command('translate', run.path)}")
    else:
        show(f"try it    {format_command('generate', run.path, '--prompt', '...')}")
