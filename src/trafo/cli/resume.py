"""`trafo resume`: resume a run that was interrupted or killed, or train it for longer."""

from __future__ import annotations

from dataclasses import dataclass

from trafo.cli.train import finish, print_help_if_asked
from trafo.errors import require
from trafo.training.config import TrainConfig
from trafo.training.run import Run
from trafo.training.start import resume

__all__ = ["Options", "parse", "run"]


@dataclass(frozen=True, kw_only=True)
class Options(TrainConfig):
    """Resume RUN from its newest checkpoint, to the same bits as if it had not been interrupted.

    Flags change its settings: --budget 10m trains for ten more minutes, --steps 2000 until there
    are 2,000 steps from the start of the run. The learning rate then follows the schedule of all
    the steps: it rises again, and ends with the run. --checkpoint.every and --watch flags apply
    from now on. Defaults are those of the run: `trafo resume RUN --help` shows them.
    """


def parse(arguments: list[str], prog: str) -> tuple[Run, TrainConfig]:
    """RUN, then flags that change its config, such as `--steps 2000`."""
    is_named = bool(arguments and arguments[0]) and not arguments[0].startswith("-")
    if {"-h", "--help", "--help-all"} & set(arguments):
        default = Options(**vars(Run.open(arguments[0]).read_config())) if is_named else None
        branch = "model" if default is None else default.branch
        print_help_if_asked(Options, arguments, f"{prog} RUN", branch, default=default)
    require(is_named, f"`{prog}` needs a run", f"for example: {prog} runs/latest")
    run = Run.open(arguments[0])
    config = run.read_config(arguments[1:], prog=f"{prog} RUN")
    if any(argument.partition("=")[0] == "--budget" for argument in arguments):
        config = run.with_more_time(config)
    return run, config


def run(options: tuple[Run, TrainConfig]) -> int:
    """Resume, and print a summary."""
    run, config = options
    return finish(resume(run.path, config))
