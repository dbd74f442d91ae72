"""`trafo average`: the mean of the weights of a run's newest checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from trafo.cli.generate import RunPath
from trafo.errors import require_at_least


@dataclass(frozen=True, kw_only=True)
class Options:
    """Average the weights of the newest checkpoints of a run; it is then used with the average.

    The checkpoints stay as they are, and `trafo resume` continues from the newest one.
    """

    run: RunPath
    """the folder of a run"""
    last: int = 5
    """how many of the newest checkpoints; a run keeps checkpoint.keep of them"""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--last": self.last})


def run(options: Options) -> None:
    """Average, and say of what."""
    from trafo.checkpoint.store import CheckpointStore
    from trafo.runtime.console import show
    from trafo.train.run import Run

    store = CheckpointStore(Run.open(options.run).checkpoint_folder)
    steps = ", ".join(f"{step:,}" for step in store.save_average(options.last))
    show(f"averaged steps {steps}: {store.average_path}")
