"""A scaling law fitted to a grid of runs: L(N, D) = E + A / N^a + B / D^b.

Hoffmann et al. (2022). N is the number of parameters without the embedding table, which takes no
part in any product, D the number of tokens; a training takes about C = 6 N D FLOPs. For given a and
b the law is linear in E, A and B, so these follow by least squares, and only the two exponents are
searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.experiments.statistics import LEVEL
from trafo.runtime.progress import progress

Numbers = NDArray[np.float64]
Observation = tuple[float, float, float]
"""N, D and the loss"""

_EXPONENTS = (0.02, 2.0)
_GRID, _ROUNDS = 24, 6
_PARAMETERS, _FEWEST_VALUES = 5, 3


@dataclass(frozen=True)
class Law:
    """The five numbers of the law."""

    E: float
    A: float
    a: float
    B: float
    b: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss that it predicts."""
        return float(self.E + self.A * parameters**-self.a + self.B * tokens**-self.b)

    def best_size(self, flops: float) -> float | None:
        """The N with the lowest loss for C = 6 N D; None if the law has no such N."""
        if min(self.A, self.B) <= 0:
            return None
        ratio = (self.a * self.A / (self.b * self.B)) ** (1 / (self.a + self.b))
        return float(ratio * (flops / 6) ** (self.b / (self.a + self.b)))


def fit(observations: Sequence[Observation]) -> Law:
    """The law with the least squared error; E, A and B are not negative."""
    require_identifiable([row[:2] for row in observations])
    sizes, tokens, losses = np.array(observations, dtype=np.float64).T
    # Around 1, where powers are well behaved.
    middle = np.exp(np.log(sizes).mean()), np.exp(np.log(tokens).mean())
    a, b, solution = _search(sizes / middle[0], tokens / middle[1], losses)
    constant, size_term, token_term = solution
    return Law(
        E=float(constant),
        A=float(size_term * middle[0] ** a),
        a=float(a),
        B=float(token_term * middle[1] ** b),
        b=float(b),
    )


def require_identifiable(points: Sequence[tuple[float, float]]) -> None:
    """Raise unless the sizes and lengths of runs determine all parameters of the law.

    Runs that differ in their seed alone are one point. A and a follow from the differences between
    three sizes, B and b from three lengths; what differs in both must be comparable.
    """
    if not _is_identifiable(points):
        distinct = [len(set(column)) for column in zip(*points, strict=True)] or [0, 0]
        raise InputError(
            f"the scaling law is not identifiable: {len(set(points))} distinct points "
            f"({distinct[0]} sizes, {distinct[1]} lengths) for {_PARAMETERS} parameters",
            hint=f"train {_FEWEST_VALUES} or more sizes, each for {_FEWEST_VALUES} or more lengths",
        )


def _is_identifiable(points: Sequence[tuple[float, float]]) -> bool:
    columns = [np.unique(column, return_inverse=True)[1] for column in np.array(points).T]
    if not columns or min(len(set(column)) for column in columns) < _FEWEST_VALUES:
        return False
    # One number for each size and one for each length: how many of them the points determine.
    design = np.hstack([np.eye(column.max() + 1)[column] for column in columns])
    return bool(np.linalg.matrix_rank(design) >= _PARAMETERS)


def _search(sizes: Numbers, tokens: Numbers, losses: Numbers) -> tuple[float, float, Numbers]:
    """A grid of exponents, refined around its best point again and again."""
    low, high = np.log(_EXPONENTS[0]), np.log(_EXPONENTS[1])
    spans = [(low, high), (low, high)]
    for _ in range(_ROUNDS):
        axes = [np.exp(np.linspace(*span, _GRID)) for span in spans]
        grid = np.array(list(product(*axes)))
        errors, solutions = _solve(grid, sizes, tokens, losses)
        best = int(np.argmin(errors))
        a, b = grid[best]
        steps = [(span[1] - span[0]) / (_GRID - 1) for span in spans]
        centers = np.log(grid[best])
        spans = [
            (max(low, center - 2 * step), min(high, center + 2 * step))
            for center, step in zip(centers, steps, strict=True)
        ]
    return float(a), float(b), solutions[best]


def _solve(
    grid: Numbers, sizes: Numbers, tokens: Numbers, losses: Numbers
) -> tuple[Numbers, Numbers]:
    """For each pair of exponents: the squared error, and E, A, B that are not negative."""
    powers = [sizes[None] ** -grid[:, :1], tokens[None] ** -grid[:, 1:]]
    columns = np.stack([np.ones_like(powers[0]), *powers], axis=-1)  # (pair, run, 3)
    errors = np.full(len(grid), np.inf)
    solutions = np.zeros((len(grid), 3))
    # Three numbers: all ways to hold some of them at zero can be tried.
    for kept in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), (1,), (2,)):
        part = columns[:, :, kept]
        squares = part.transpose(0, 2, 1) @ part + 1e-12 * np.eye(len(kept))
        right = part.transpose(0, 2, 1) @ losses
        found = np.linalg.solve(squares, right[..., None])[..., 0]
        residuals = (part @ found[..., None])[..., 0] - losses
        error = (residuals**2).sum(axis=1)
        better = (found >= 0).all(axis=1) & (error < errors)
        errors[better] = error[better]
        full = np.zeros((len(grid), 3))
        full[:, kept] = found
        solutions[better] = full[better]
    return errors, solutions


def bootstrap(observations: Sequence[Observation], resamples: int) -> list[Law]:
    """Laws fitted to runs drawn with replacement: their spread says how sure the law is."""
    chance = np.random.default_rng(0)
    laws: list[Law] = []
    with progress("bootstrap", total=resamples, unit="fits") as bar:
        while len(laws) < resamples:
            rows = chance.integers(len(observations), size=len(observations))
            drawn = [observations[row] for row in rows]
            if not _is_identifiable([row[:2] for row in drawn]):
                continue
            laws.append(fit(drawn))
            bar.advance()
    return laws


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The percentiles that hold the middle 95 %."""
    low, high = np.quantile(np.array(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
