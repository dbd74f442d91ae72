"""`trafo resume`: go on with a run that was interrupted, killed, or shall become longer."""

from __future__ import annotations

from trafo.errors import ConfigError
from trafo.train.config import TrainConfig as Options
from trafo.train.run import RunFolder
from trafo.train.start import resume

__all__ = ["Options", "parse", "run"]


def parse(arguments: list[str], prog: str) -> tuple[RunFolder, Options]:
    """RUN, then flags that change its config, such as `--steps 2000`."""
    if not arguments or arguments[0].startswith("-"):
        raise ConfigError(f"`{prog}` needs a run", hint=f"write {prog} runs/latest")
    folder = RunFolder.existing(arguments[0])
    return folder, folder.read_config(arguments[1:], prog=f"{prog} RUN")


def run(options: tuple[RunFolder, Options]) -> int:
    """Go on, and say how it went."""
    folder, config = options
    return resume(folder.path, config)
