"""`trafo experiment`: run the arms, sweeps and seeds of a file, and report what they show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trafo.cli.arguments import Texts
from trafo.config import Argument, Positional
from trafo.errors import require_at_least
from trafo.runtime.console import format_command, plain_table, show
from trafo.runtime.sizes import format_duration, format_size

if TYPE_CHECKING:
    from rich.table import Table

    from trafo.experiments.cost import Prediction
    from trafo.experiments.plan import PlannedRun
    from trafo.experiments.spec import Experiment


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run an experiment: every arm, sweep point and seed of a file, such as experiments/*.yaml.

    If it is killed, run it again to continue: finished runs stay, interrupted ones resume. The
    report is written into the experiment's folder.
    """

    file: Annotated[Positional[Path], Argument(metavar="FILE")]
    """experiment file"""
    text: Texts = ()
    """text to train on, instead of that in the file"""
    out: Path | None = None
    """folder of the runs and the report; None: runs/ and the name of the file"""
    jobs: int | None = None
    """runs at a time, which share the cores; None: one per core, if memory has room"""
    threads: int | None = None
    """CPU threads of each run; None: the cores divided by the runs at a time"""
    on: str | None = None
    """Ray cluster to run on: ray (on this machine), ray://host:port or host:port; None: here.
    The folders of the runs and of data.cache must be visible on all nodes"""
    dry_run: bool = False
    """list the runs with their predicted time and memory, and do not run them"""


def run(options: Options) -> None:
    """Plan and show the plan, or run and report."""
    from trafo.experiments.spec import read_experiment

    require_at_least(1, jobs=options.jobs, threads=options.threads)
    experiment = read_experiment(options.file, options.text)
    folder = options.out or Path("runs") / experiment.name
    if options.dry_run:
        _show_plan(experiment, folder, options)
    else:
        _run(experiment, folder, options)


def _run(experiment: Experiment, folder: Path, options: Options) -> None:
    from trafo.experiments.report import PAGE, list_verdicts
    from trafo.experiments.start import run_experiment

    findings = run_experiment(
        experiment, folder, options.jobs, threads=options.threads, on=options.on
    )
    lines = [line for section in findings.extra for line in section.lines]
    for line in [*list_verdicts(findings.summary), *lines]:
        show(f"- {line}")
    show(f"report    {folder / PAGE}")
    show(f"runs      {format_command('runs', folder)}, tensorboard --logdir {folder}")


def _show_plan(experiment: Experiment, folder: Path, options: Options) -> None:
    from trafo.experiments.cost import predict, share_machine, total_seconds
    from trafo.experiments.plan import plan_runs
    from trafo.experiments.results import read_result
    from trafo.experiments.start import check_unchanged

    runs = plan_runs(experiment, folder)
    check_unchanged(runs)
    jobs, threads = share_machine(runs, options.jobs, options.threads)
    predictions = predict(runs, threads)
    show(_table(runs, predictions))
    waiting = [run for run in runs if read_result(run.folder) is None]
    seconds = total_seconds([predictions[run.name].seconds for run in waiting], jobs)
    done = f", {len(runs) - len(waiting)} of them done" if len(waiting) < len(runs) else ""
    show(
        f"{len(runs)} runs{done}; {jobs} at a time with {threads} "
        f"{'thread' if threads == 1 else 'threads'} each: about {format_duration(seconds)}"
    )


def _table(runs: list[PlannedRun], predictions: dict[str, Prediction]) -> Table:
    from trafo.experiments.plan import num_parameters, tokens_per_step

    table = plain_table("lrrrrr", ("run", "parameters", "steps", "tokens", "time", "memory"))
    for run in runs:
        config, predicted = run.config, predictions[run.name]
        by_clock = config.budget is not None
        table.add_row(
            run.name,
            f"{num_parameters(config):,}",
            "-" if by_clock else f"{config.steps:,}",
            "-" if by_clock else f"{config.steps * tokens_per_step(config):,}",
            format_duration(predicted.seconds),
            format_size(predicted.memory),
        )
    return table
