"""Test a scaling law: predict a run of several times the FLOPs, train it, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

import numpy as np

from trafo.experiments.pictures import Picture, new_figure, some_colors
from trafo.experiments.plan import (
    PlannedRun,
    flops_per_step,
    matched,
    num_parameters,
    tokens_per_step,
)
from trafo.experiments.report.content import Block, Grid, Heading, Sentences
from trafo.experiments.result import Result, read_result
from trafo.experiments.scaling import (
    Law,
    Observation,
    bootstrap,
    fit,
    interval,
    require_identifiable,
)
from trafo.experiments.spec import Scaling
from trafo.training.config import TrainConfig

LARGER = "larger"
_CURVES = 5


def law_parameters(config: TrainConfig) -> int:
    """N in the law: parameters without the embedding table, unless it is also the head."""
    model = config.language_model
    is_tied = getattr(model, "tied_head", True)
    return num_parameters(config) - (0 if is_tied else model.vocab_size * model.d_model)


@dataclass(frozen=True)
class Extrapolation:
    """A law, the runs that it was fitted to, and the larger run that tests it."""

    scaling: Scaling
    runs: tuple[PlannedRun, ...]
    """those that have finished"""

    @cached_property
    def observations(self) -> list[Observation]:
        """N, D and the loss of each run."""
        found = []
        for run in self.runs:
            result = read_result(run.folder)
            assert result is not None
            assert result.loss is not None
            found.append((float(law_parameters(run.config)), float(result.tokens), result.loss))
        return found

    @cached_property
    def law(self) -> Law:
        """The fit to all runs."""
        return fit(self.observations)

    @cached_property
    def laws(self) -> list[Law]:
        """Fits to resamples of them."""
        return bootstrap(self.observations, self.scaling.resamples)

    @cached_property
    def largest(self) -> PlannedRun:
        """The run with the most FLOPs."""
        return max(self.runs, key=_flops)

    def larger(self, folder: Path) -> PlannedRun:
        """The run to be predicted: of the size that the law finds best for its FLOPs."""
        config = self.largest.config
        flops = self.scaling.factor * _flops(self.largest)
        most = max(law_parameters(run.config) for run in self.runs)
        fewest = min(law_parameters(run.config) for run in self.runs)
        best = self.law.best_size(flops) or most * self.scaling.factor**0.5
        size = min(max(best, fewest), most * self.scaling.factor)
        config = matched(config, self.scaling.width, round(size), law_parameters, tolerance=0.5)
        steps = max(1, round(flops / flops_per_step(config)))
        every = max(1, steps // 10)
        watch = replace(config.watch, evaluate_every=every)
        # Named by what it is: with more seeds the law changes, and with it the run to be made.
        out = folder / f"{LARGER}_n{law_parameters(config)}_steps{steps}_seed{config.seed}"
        config = replace(config, steps=steps, watch=watch, out=out.absolute())
        return PlannedRun(name=out.name, arm=LARGER, point={}, seed=config.seed, config=config)

    def blocks(self, run: PlannedRun, result: Result | None) -> list[Block]:
        """What the report says of it."""
        size, tokens = law_parameters(run.config), run.config.steps * tokens_per_step(run.config)
        predicted = self.law.loss(size, tokens)
        low, high = interval([law.loss(size, tokens) for law in self.laws])
        lines = [
            f"L(N, D) = {self.law.E:.3f} + {self.law.A:.4g} / N^{self.law.a:.3f} + "
            f"{self.law.B:.4g} / D^{self.law.b:.3f}, fitted to {len(self.runs)} runs "
            f"at {len({row[:2] for row in self.observations})} distinct points; "
            f"its error on them is {self._error():.4f} nats (root mean square).",
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
        measured = None if result is None else result.loss
        picture = self._picture((size, tokens, measured))
        return [Heading("Scaling law"), Sentences(tuple(lines)), self._table(), picture]

    def _error(self) -> float:
        squares = [(self.law.loss(n, d) - loss) ** 2 for n, d, loss in self.observations]
        return float(np.sqrt(fmean(squares)))

    def _table(self) -> Grid:
        rows = []
        for name in ("E", "A", "a", "B", "b"):
            low, high = interval([getattr(law, name) for law in self.laws])
            rows.append((name, f"{getattr(self.law, name):.4g}", f"{low:.4g} to {high:.4g}"))
        return Grid(("", "fit", "95 % interval by bootstrap"), tuple(rows))

    def _picture(self, larger: tuple[float, float, float | None]) -> Picture:
        """IsoFLOP curves: for each amount of FLOPs, the loss against the size of the model."""
        figure, axes = new_figure()
        table = np.array(self.observations)
        flops = 6 * table[:, 0] * table[:, 1]
        amounts = np.geomspace(flops.min(), flops.max(), _CURVES)
        amounts = np.append(amounts, 6 * larger[0] * larger[1])
        sizes = np.geomspace(table[:, 0].min() / 1.5, max(table[:, 0].max(), larger[0]) * 1.5, 80)
        nearest = np.abs(np.log(flops[:, None] / amounts[None])).argmin(axis=1)
        for index, (color, amount) in enumerate(
            zip(some_colors(len(amounts), shaded=True), amounts, strict=True)
        ):
            losses = [self.law.loss(size, amount / (6 * size)) for size in sizes]
            axes.plot(sizes, losses, color=color, label=f"{amount:.2g} FLOPs")
            mine = table[nearest == index]
            axes.plot(mine[:, 0], mine[:, 2], "o", color=color, markersize=4)
            best = self.law.best_size(amount)
            if best is not None and sizes[0] <= best <= sizes[-1]:
                axes.plot([best], [self.law.loss(best, amount / (6 * best))], "k+", markersize=9)
        for size, tokens, loss in self.observations:
            axes.plot([size, size], [loss, self.law.loss(size, tokens)], color="0.6", linewidth=0.8)
        if larger[2] is not None:
            axes.plot([larger[0]], [larger[2]], "*", color="crimson", markersize=13)
        lowest = min(table[:, 2].min(), self.law.loss(larger[0], larger[1]), larger[2] or np.inf)
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
        return Picture("isoflop", caption, figure)


def check_grid(runs: Sequence[PlannedRun]) -> None:
    """Raise, before anything is trained, if no law can follow from these runs."""
    require_identifiable(
        [
            (float(law_parameters(run.config)), run.config.steps * tokens_per_step(run.config))
            for run in runs
        ]
    )


def _flops(run: PlannedRun) -> int:
    return run.config.steps * flops_per_step(run.config)


def finished(runs: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
    """The runs that a law can be fitted to."""
    results = {run.name: read_result(run.folder) for run in runs}
    return tuple(
        run for run in runs if (r := results[run.name]) is not None and r.status == "finished"
    )
