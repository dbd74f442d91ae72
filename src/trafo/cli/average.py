"""`trafo average`: the mean of the weights of a run's newest checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from trafo.cli.arguments import LATEST, RunPath
from trafo.errors import require_at_least
from trafo.runtime.console import show


@dataclass(frozen=True, kw_only=True)
class Options:
    """Checkpoint averaging: the mean of the weights of a run's newest checkpoints.

    The run is then used with the average; `trafo resume` continues from the newest checkpoint.
    """

    run: RunPath = LATEST
    """the folder of a run"""
    last: int = 5
    """number of checkpoints to average; a run keeps checkpoint.keep of them"""
    threads: int | None = None
    """CPU threads; None: all cores"""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--last": self.last, "--threads": self.threads})


def run(options: Options) -> None:
    """Average, and print the steps."""
    from trafo.checkpoint.store import CheckpointStore
    from trafo.fast.threads import torch_threads
    from trafo.training.run import Run

    torch_threads(options.threads)
    store = CheckpointStore(Run.open(options.run).checkpoint_folder)
    steps = ", ".join(f"{step:,}" for step in store.save_average(options.last))
    show(f"averaged steps {steps}: {store.average_path}")
