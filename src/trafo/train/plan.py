"""How many steps, and what happens how often on the way.

A budget of time becomes a number of steps: a few steps are tried before the run begins, and the
number is set right again and again, from what steps have really cost so far. The learning rate
follows the number of steps, so it arrives at its floor when the time is over.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from trafo.runtime.sizes import parse_duration
from trafo.train.config import TrainConfig

_VALIDATIONS, _SAMPLES, _CHECKPOINTS, _LOOKS = 20, 4, 10, 50
_VALIDATION_SHARE = 0.015
_FORWARD_COST = 1 / 3  # of a training step
# What the end takes: the last validation, checkpoint and picture.
_RESERVE = 0.03


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
