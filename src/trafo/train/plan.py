"""How many steps, and what happens how often on the way.

A budget of time becomes a number of steps: a few steps are tried before the run begins, and the
number is set right again and again, from what steps have really cost so far. The learning rate
follows the number of steps, so it arrives at its floor when the time is over.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from trafo.checkpoint.snapshot import Snapshot, restore, take
from trafo.runtime.progress import progress
from trafo.runtime.sizes import parse_duration
from trafo.train.build import Training
from trafo.train.config import TrainConfig

_VALIDATIONS, _SAMPLES, _CHECKPOINTS, _LOOKS = 20, 4, 10, 50
_VALIDATION_SHARE = 0.015
_FORWARD_COST = 1 / 3  # of a training step
# What the end takes: the last validation, checkpoint and picture.
_RESERVE = 0.03
# What trying steps may take: seconds, a share of the budget, steps.
_LONGEST, _SHARE, _MOST_STEPS = 10.0, 0.02, 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Part of a checkpoint: a run that goes on keeps to it."""

    steps: int
    evaluate_every: int
    sample_every: int
    checkpoint_every: int
    evaluate_tokens: int

    @classmethod
    def of(cls, config: TrainConfig, steps: int) -> Plan:
        """The config's intervals; those it leaves open follow from the number of steps."""
        samples = config.watch.sample_every
        evaluate_every = config.watch.evaluate_every or max(1, steps // _VALIDATIONS)
        return cls(
            steps=steps,
            evaluate_every=evaluate_every,
            evaluate_tokens=config.watch.evaluate_tokens or _cheap_tokens(config, evaluate_every),
            sample_every=max(1, steps // _SAMPLES) if samples is None else samples,
            # A multiple: what is saved has just been measured, and can be called the best.
            checkpoint_every=config.checkpoint.every
            or evaluate_every * max(1, round(steps / _CHECKPOINTS / evaluate_every)),
        )

    def is_due(self, every: int, step: int) -> bool:
        """Whether something that happens every so many steps happens after this one."""
        return every > 0 and (step % every == 0 or step == self.steps)

    @property
    def correct_every(self) -> int:
        """Steps between two looks at the clock."""
        return max(1, self.steps // _LOOKS)

    def corrected(self, step: int, seconds_left: float, seconds_per_step: float) -> Plan:
        """The same plan with the steps that still fit; at least one more."""
        fitting = steps_that_fit(seconds_left, seconds_per_step)
        return dataclasses.replace(self, steps=step + max(1, fitting))


def _cheap_tokens(config: TrainConfig, evaluate_every: int) -> int:
    """So many that validating them takes a small share of the time between two validations."""
    trained = evaluate_every * config.tokens_per_step
    return max(round(_VALIDATION_SHARE * trained / _FORWARD_COST), 4 * config.seq)


def steps_that_fit(seconds: float, seconds_per_step: float) -> int:
    """Whole steps for this time."""
    return int(seconds / seconds_per_step)


def time_to_train(budget: str) -> float:
    """Seconds of a budget, without what the end takes."""
    return parse_duration(budget) * (1 - _RESERVE)


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
