"""A scaling law fitted to a grid of runs, and tested on a larger one: L(N, D) = E + A/N^a + B/D^b.

Hoffmann et al. (2022). N is the number of parameters without the embedding table, which takes no
part in any product, D the number of tokens; a training run takes about C = 6 N D FLOPs. For given a
and b the law is linear in E, A and B, so these follow by non-negative least squares, and only the
two exponents are searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.experiments.pictures import Plot, new_figure, pick_colors
from trafo.experiments.plan import (
    PlannedRun,
    flops_per_step,
    match_parameters,
    num_parameters,
    tokens_per_step,
)
from trafo.experiments.report import Section
from trafo.experiments.results import LEVEL, RunResult, read_result
from trafo.experiments.spec import Scaling
from trafo.runtime.progress import progress
from trafo.training.config import TrainConfig

Numbers = NDArray[np.float64]
Observation = tuple[float, float, float]
"""N, D and the loss"""

LARGER = "larger"
_EXPONENTS = (0.02, 2.0)
_GRID_POINTS, _MAX_NNLS_STEPS = 12, 100
_NUM_PARAMETERS, _MIN_VALUES = 5, 3
_NUM_CURVES = 5


@dataclass(frozen=True)
class Law:
    """The five numbers of the law."""

    E: float
    A: float
    a: float
    B: float
    b: float

    def loss(self, parameters: float, tokens: float) -> float:
        """Predict the loss."""
        return float(self.E + self.A * parameters**-self.a + self.B * tokens**-self.b)

    def best_size(self, flops: float) -> float | None:
        """Return the N with the lowest loss for C = 6 N D, None if the law has no such N."""
        if min(self.A, self.B) <= 0:
            return None
        ratio = (self.a * self.A / (self.b * self.B)) ** (1 / (self.a + self.b))
        return float(ratio * (flops / 6) ** (self.b / (self.a + self.b)))


def fit(observations: Sequence[Observation]) -> Law:
    """Fit the law with the least squared error, whose E, A and B are not negative."""
    from scipy.optimize import brute, minimize, nnls

    require_identifiable([row[:2] for row in observations])
    sizes, tokens, losses = np.array(observations, dtype=np.float64).T
    # Around 1, where powers are well behaved.
    middle = np.exp(np.log(sizes).mean()), np.exp(np.log(tokens).mean())
    sizes, tokens = sizes / middle[0], tokens / middle[1]

    def solve(logs: Numbers) -> tuple[Numbers, float]:
        """E, A and B for the logarithms of a and b, and the norm of what they leave."""
        a, b = np.exp(logs)
        columns = np.stack([np.ones_like(sizes), sizes**-a, tokens**-b], axis=1)
        solution, norm = nnls(columns, losses, maxiter=_MAX_NNLS_STEPS)
        return solution, float(norm)

    def error(logs: Numbers) -> float:
        return solve(logs)[1]

    # The error may have several minima: a grid finds the lowest, a local search its bottom.
    bounds = [(np.log(_EXPONENTS[0]), np.log(_EXPONENTS[1]))] * 2
    start = brute(error, bounds, Ns=_GRID_POINTS, finish=None)
    options = {"xatol": 1e-7, "fatol": 1e-12}
    logs = minimize(error, start, method="Nelder-Mead", bounds=bounds, options=options).x
    (a, b), (constant, size_term, token_term) = np.exp(logs), solve(logs)[0]
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
            f"({distinct[0]} sizes, {distinct[1]} lengths) for {_NUM_PARAMETERS} parameters",
            hint=f"train {_MIN_VALUES} or more sizes, each for {_MIN_VALUES} or more lengths",
        )


def _is_identifiable(points: Sequence[tuple[float, float]]) -> bool:
    columns = [np.unique(column, return_inverse=True)[1] for column in np.array(points).T]
    if not columns or min(len(set(column)) for column in columns) < _MIN_VALUES:
        return False
    # One number for each size and one for each length: how many of them the points determine.
    design = np.hstack([np.eye(column.max() + 1)[column] for column in columns])
    return bool(np.linalg.matrix_rank(design) >= _NUM_PARAMETERS)


def bootstrap(observations: Sequence[Observation], resamples: int) -> list[Law]:
    """Fit laws to runs drawn with replacement: their spread says how sure the law is."""
    # Not scipy.stats.bootstrap: a draw that determines no law must be drawn again.
    chance = np.random.default_rng(0)
    laws: list[Law] = []
    with progress("bootstrap", total=resamples, unit="fits") as bar:
        while len(laws) < resamples:
            rows = chance.integers(len(observations), size=len(observations))
            drawn = [observations[row] for row in rows]
            if _is_identifiable([row[:2] for row in drawn]):
                laws.append(fit(drawn))
                bar.advance()
    return laws


def percentile_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the percentiles that hold the middle 95 %."""
    low, high = np.quantile(np.array(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def count_law_parameters(config: TrainConfig) -> int:
    """Count N of the law: parameters without the embedding table, unless it is also the head."""
    model = config.language_model
    is_tied = getattr(model, "tied_head", True)
    return num_parameters(config) - (0 if is_tied else model.vocab_size * model.d_model)


def check_grid(runs: Sequence[PlannedRun]) -> None:
    """Raise, before anything is trained, if no law can follow from these runs."""
    require_identifiable([(float(_size(run)), _tokens(run)) for run in runs])


def _size(run: PlannedRun) -> int:
    return count_law_parameters(run.config)


def _tokens(run: PlannedRun) -> int:
    return run.config.steps * tokens_per_step(run.config)


def _flops(run: PlannedRun) -> int:
    return run.config.steps * flops_per_step(run.config)


class Extrapolation:
    """A law fitted to the runs that have finished, and the larger run that tests it."""

    def __init__(self, scaling: Scaling, runs: Sequence[PlannedRun]) -> None:
        self.scaling = scaling
        results = [(run, read_result(run.folder)) for run in runs]
        self.runs = [run for run, result in results if result and result.status == "finished"]
        self.observations: list[Observation] = [
            (float(_size(run)), float(result.tokens), result.loss)
            for run, result in results
            if result and result.status == "finished" and result.loss is not None
        ]
        self.law = fit(self.observations)

    @cached_property
    def laws(self) -> list[Law]:
        """Fits to resamples of the runs."""
        return bootstrap(self.observations, self.scaling.resamples)

    def plan_larger_run(self, folder: Path) -> PlannedRun:
        """Plan the run to be predicted, of the size that the law finds best for its FLOPs."""
        factor, largest = self.scaling.factor, max(self.runs, key=_flops)
        flops, sizes = factor * _flops(largest), [_size(run) for run in self.runs]
        best = self.law.best_size(flops) or max(sizes) * factor**0.5
        size = round(min(max(best, min(sizes)), max(sizes) * factor))
        config = match_parameters(
            largest.config, self.scaling.width, size, count_law_parameters, tolerance=0.5
        )
        steps = max(1, round(flops / flops_per_step(config)))
        watch = replace(config.watch, evaluate_every=max(1, steps // 10))
        # Named by what it is: with more seeds the law changes, and with it the run to be made.
        out = folder / f"{LARGER}_n{count_law_parameters(config)}_steps{steps}_seed{config.seed}"
        config = replace(config, steps=steps, watch=watch, out=out.absolute())
        return PlannedRun(LARGER, {}, config)

    def report(self, run: PlannedRun, result: RunResult | None) -> Section:
        """Report the law, its prediction for the larger run, and what was measured."""
        picture = self._draw(run, None if result is None else result.loss)
        lines = self._describe(run, result)
        return Section("Scaling law", lines, {picture.name: picture}, self._tabulate())

    def _describe(self, run: PlannedRun, result: RunResult | None) -> list[str]:
        """State the law, what it predicts for the larger run, and what was measured."""
        law, size, tokens = self.law, _size(run), _tokens(run)
        predicted = law.loss(size, tokens)
        low, high = percentile_interval([each.loss(size, tokens) for each in self.laws])
        squares = [(law.loss(n, d) - loss) ** 2 for n, d, loss in self.observations]
        lines = [
            f"L(N, D) = {law.E:.3f} + {law.A:.4g} / N^{law.a:.3f} + {law.B:.4g} / D^{law.b:.3f}, "
            f"fitted to {len(self.runs)} runs at {len({row[:2] for row in self.observations})} "
            f"distinct points; its error on them is {np.sqrt(np.mean(squares)):.4f} nats "
            "(root mean square).",
            f"Predicted for N = {size:,} and D = {tokens:,}, {self.scaling.factor:g} times the "
            f"FLOPs of the largest run: {predicted:.4f} ({low:.4f} to {high:.4f} by bootstrap).",
        ]
        if result is not None and result.loss is not None:
            error = result.loss - predicted
            inside = "inside" if low <= result.loss <= high else "outside"
            lines.append(
                f"Measured: {result.loss:.4f}, {error:+.4f} nats ({error / result.loss:+.1%}) from "
                f"the prediction, {inside} the interval."
            )
        elif result is not None:
            lines.append(f"The larger run {result.status} at step {result.step:,}.")
        return lines

    def _tabulate(self) -> list[list[str]]:
        """Tabulate the five numbers of the law with their intervals."""
        rows = [["", "fit", "95 % interval by bootstrap"]]
        for name, value in vars(self.law).items():
            low, high = percentile_interval([getattr(law, name) for law in self.laws])
            rows.append([name, f"{value:.4g}", f"{low:.4g} to {high:.4g}"])
        return rows

    def _draw(self, larger: PlannedRun, measured: float | None) -> Plot:
        """Draw IsoFLOP curves: for each amount of FLOPs, the loss against the size of the model."""
        figure, axes = new_figure()
        law, size, tokens = self.law, _size(larger), _tokens(larger)
        table = np.array(self.observations)
        flops = 6 * table[:, 0] * table[:, 1]
        amounts = np.append(np.geomspace(flops.min(), flops.max(), _NUM_CURVES), 6 * size * tokens)
        nearest = np.abs(np.log(flops[:, None] / amounts[None])).argmin(axis=1)
        sizes = np.geomspace(table[:, 0].min() / 1.5, max(table[:, 0].max(), size) * 1.5, 80)
        colors = pick_colors(len(amounts), shaded=True)
        for index, (color, amount) in enumerate(zip(colors, amounts, strict=True)):
            losses = [law.loss(n, amount / (6 * n)) for n in sizes]
            axes.plot(sizes, losses, color=color, label=f"{amount:.2g} FLOPs")
            mine = table[nearest == index]
            axes.plot(mine[:, 0], mine[:, 2], "o", color=color, markersize=4)
            best = law.best_size(amount)
            if best is not None and sizes[0] <= best <= sizes[-1]:
                axes.plot([best], [law.loss(best, amount / (6 * best))], "k+", markersize=9)
        for n, d, loss in self.observations:
            axes.plot([n, n], [loss, law.loss(n, d)], color="0.6", linewidth=0.8)
        if measured is not None:
            axes.plot([size], [measured], "*", color="crimson", markersize=13)
        lowest = min(table[:, 2].min(), law.loss(size, tokens), measured or np.inf)
        axes.set_ylim(lowest - 0.2, table[:, 2].max() + 0.2)
        axes.set_xscale("log")
        axes.set_xlabel("parameters without embeddings")
        axes.set_ylabel("held-out loss in nats per token")
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        caption = (
            "IsoFLOP curves of the fitted law; plus: the best size. Dots: runs, coloured by the "
            "nearest amount, with a line to what the law says for each; star: the larger run as "
            "measured."
        )
        return Plot("isoflop", caption, figure)
