"""`trafo resume`: resume a run that was interrupted or killed, or train it for longer."""

from __future__ import annotations

from trafo.cli.train import finish
from trafo.errors import require
from trafo.train.config import TrainConfig as Options
from trafo.train.run import Run
from trafo.train.start import resume

__all__ = ["Options", "parse", "run"]


def parse(arguments: list[str], prog: str) -> tuple[Run, Options]:
    """RUN, then flags that change its config, such as `--steps 2000`."""
    is_named = bool(arguments) and not arguments[0].startswith("-")
    require(is_named, f"`{prog}` needs a run", f"for example: {prog} runs/latest")
    run = Run.open(arguments[0])
    return run, run.read_config(arguments[1:], prog=f"{prog} RUN")


def run(options: tuple[Run, Options]) -> int:
    """Resume, and print a summary."""
    run, config = options
    return finish(resume(run.path, config))
