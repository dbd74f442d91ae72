"""`trafo train`: text or sentence pairs in, a trained model out."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trafo.config import asks_for_help, fields_table, load, nest, read_flags, read_yaml, to_yaml
from trafo.config.help import format_help
from trafo.errors import ConfigError
from trafo.runtime.console import format_command, show
from trafo.runtime.sizes import format_duration, format_rate
from trafo.training.auto.resolve import AUTOMATIC, print_settings, resolve_config
from trafo.training.config import SHORT_NAMES, find_branch
from trafo.training.config import TrainConfig as Options

if TYPE_CHECKING:
    from trafo.training.run import Run

__all__ = ["Options", "parse", "run"]

_CONFIG, _SHOW, _HELP_ALL = "--config", "--show-config", "--help-all"
_OFTEN = (
    *("budget", "steps", "batch_size", "pairs", "architecture", "optimizer.name", "optimizer.lr"),
    *("seed", "out", "watch.prompt", "machine.threads"),
)
_NOTE = """\
--d-model, --layers, --heads and --vocab-size are short for those settings of the model."""


def parse(arguments: list[str], prog: str) -> tuple[Options, bool]:
    """The settings of `--config FILE`, or settings that suit the text; flags override them.

    Also whether to print them only (`--show-config`).
    """
    only_shown = _SHOW in arguments
    arguments = [argument for argument in arguments if argument != _SHOW]
    path = take_value(arguments, _CONFIG)
    recipe = {} if path is None else read_yaml(Path(path))
    branch = find_branch(_find_architecture(arguments, recipe))
    print_help_if_asked(Options, arguments, prog, branch, AUTOMATIC if path is None else ())
    arguments = expand_short_names(arguments, branch)
    if path is not None:
        return load(Options, recipe, arguments, where=path, prog=prog), only_shown
    config = resolve_config(nest(read_flags(Options, arguments)))
    print_settings(config)
    return config, only_shown


def _find_architecture(arguments: list[str], recipe: Mapping[str, Any]) -> str:
    """Find which model is meant, before the flags are read: short ones depend on it."""
    names = [argument.partition("=")[0] for argument in arguments]
    default = "encoder-decoder" if "--pairs" in names else "transformer-lm"
    flagged = take_value(list(arguments), "--architecture", "NAME")
    return flagged or str(recipe.get("architecture", default))


def expand_short_names(arguments: list[str], branch: str) -> list[str]:
    """Write `--layers 4` as `--model.num-layers=4`, in the branch of the model that is trained."""
    prefix = f"--{branch}.".replace("_", "-")
    known = {setting.flag for setting in fields_table(Options)}
    rest, expanded = list(arguments), list[str]()
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        keys = SHORT_NAMES.get(name.replace("_", "-"), ())
        flags = [flag for key in keys if (flag := prefix + key.replace("_", "-")) in known]
        if flags and not equals and rest and not rest[0].startswith("--"):
            equals, value = "=", rest.pop(0)
        expanded += [flag + equals + value for flag in flags] or [word]
    return expanded


def print_help_if_asked(
    cls: type,
    arguments: list[str],
    prog: str,
    branch: str,
    automatic: Collection[str] = (),
    default: Options | None = None,
) -> None:
    """Print the settings that people use and the model's for `--help`, all for `--help-all`."""
    if not asks_for_help(arguments) and _HELP_ALL not in arguments:
        return
    settings = fields_table(cls)
    groups = None
    if _HELP_ALL not in arguments:
        of_model = [setting.key for setting in settings if setting.key.startswith(f"{branch}.")]
        groups = {"": _OFTEN, branch: of_model}
    note = _NOTE if groups is None else f"{_NOTE}\n--help-all shows all {len(settings)} settings."
    sys.stdout.write(format_help(cls, prog, default, groups=groups, automatic=automatic, note=note))
    raise SystemExit(0)


def take_value(arguments: list[str], flag: str, metavar: str = "FILE") -> str | None:
    """Remove a flag and its value; returns the value, or None if the flag is not given."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name != flag:
            continue
        if equals and value:
            del arguments[index]
            return value
        if equals or not "".join(arguments[index + 1 : index + 2]):
            raise ConfigError(f"{flag} needs a value", hint=f"write {flag} {metavar}")
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
