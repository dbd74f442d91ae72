"""Means of few numbers: Student's t intervals, and differences paired by seed.

The mean of n numbers with sample standard deviation s lies within t * s / sqrt(n) of the true mean
in 95 % of cases, where t is the 97.5 % quantile of Student's t with n - 1 degrees of freedom. With
three seeds t is 4.3, with one seed there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.95
"""share of the cases in which an interval holds the true mean"""


@dataclass(frozen=True)
class Estimate:
    """A mean, with its interval where there is one."""

    mean: float
    half_width: float | None
    """half the width of the interval; None for a single number"""
    count: int

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def excludes_zero(self) -> bool:
        """Whether it is more than the noise."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of the values; None if there are none."""
    count = len(values)
    if count < 2:
        return Estimate(values[0], None, 1) if values else None
    quantile = t_quantile((1 + LEVEL) / 2, count - 1)
    return Estimate(fmean(values), quantile * stdev(values) / math.sqrt(count), count)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """The mean of ours - theirs over the seeds that both have.

    Runs of one seed see the same batches: what they share cancels, so that the interval is
    narrower than those of the two means.
    """
    return estimate([ours[seed] - theirs[seed] for seed in ours if seed in theirs])


def t_quantile(probability: float, degrees: int) -> float:
    """The x below which Student's t lies with this probability."""
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < probability:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):  # as near as floats are
            break
        low, high = (
            (middle, high) if t_probability(middle, degrees) < probability else (low, middle)
        )
    return (low + high) / 2


def t_probability(x: float, degrees: int) -> float:
    """P(T <= x) in closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(x / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    is_odd = degrees % 2
    # cos + 2/3 cos^3 + ... for odd degrees, 1 + 1/2 cos^2 + ... for even ones.
    term, total = (cosine if is_odd else 1.0), 0.0
    for power in range(1 + is_odd, degrees, 2):
        total += term
        term *= cosine**2 * power / (power + 1)
    inside = 2 / math.pi * (angle + sine * total) if is_odd else sine * total
    return (1 + inside) / 2
