"""How long a step takes, found out by taking a few that leave no trace."""

from __future__ import annotations

import dataclasses
from statistics import median
from time import perf_counter

from trafo.checkpoint.snapshot import Snapshot, restore, take
from trafo.runtime.progress import progress
from trafo.train.build import Training

_LONGEST = 10.0
_SHARE = 0.02
_MOST_STEPS = 20


def seconds_per_step(training: Training, budget: float) -> float:
    """The median of several steps, in at most 2 % of the budget; at least two are taken."""
    before = _copy(take(training.model, training.optimizers))
    seconds: list[float] = []
    end = perf_counter() + min(_LONGEST, _SHARE * budget)
    with progress("trying steps", unit="steps") as bar:
        # The first step is slower (memory, compiling): it does not count.
        while len(seconds) < 2 or (perf_counter() < end and len(seconds) < _MOST_STEPS):
            start = perf_counter()
            training.stepper.run(0, rate_factor=1.0)
            seconds.append(perf_counter() - start)
            bar.advance()
            if training.ranks.world > 1 and len(seconds) >= 3:
                break  # every rank must take as many as the others
    restore(before, training.model, training.optimizers)
    return training.ranks.agree(median(seconds[1:]))


def _copy(snapshot: Snapshot) -> Snapshot:
    """Tensors that training does not change."""
    return dataclasses.replace(
        snapshot,
        weights={name: tensor.clone() for name, tensor in snapshot.weights.items()},
        moments={name: tensor.clone() for name, tensor in snapshot.moments.items()},
    )
