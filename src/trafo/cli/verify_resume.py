"""`trafo verify-resume`: check, for your own config, that a killed run resumes exactly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from trafo.cli.arguments import Paths
from trafo.config import Argument, Positional, load
from trafo.errors import require_at_least
from trafo.runtime.console import show

if TYPE_CHECKING:
    from trafo.training.config import TrainConfig
    from trafo.training.verify import Verdict

EXACT, DIFFERENT = 0, 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train a few steps twice, once uninterrupted and once killed and resumed, and compare."""

    config: Annotated[Positional[Path], Argument(metavar="CONFIG")]
    """a YAML file, or the folder of a run"""
    text: tuple[str, ...] = ()
    """text to train on, if the config does not name one"""
    pairs: Paths = ()
    """sentence pairs to train on, if the config does not name any"""
    steps: int = 12
    """training steps of each run"""
    threads: int | None = None
    """CPU threads, the same number in all runs; None: that of the config, or 1"""
    kills: int = 2
    """number of times the second run is killed"""

    def __post_init__(self) -> None:
        require_at_least(2, **{"--steps": self.steps})
        require_at_least(1, **{"--kills": self.kills})


def run(options: Options) -> int:
    """Compare, and print what was compared; returns 0 if everything is equal."""
    from trafo.training.verify import verify_resume

    config = _config(options)
    with TemporaryDirectory(prefix="trafo-verify-") as folder:
        verdict = verify_resume(config, Path(folder), steps=options.steps, kills=options.kills)
    _print_verdict(verdict)
    return EXACT if verdict.is_exact else DIFFERENT


def _config(options: Options) -> TrainConfig:
    from trafo.checkpoint.locate import RUN_CONFIG
    from trafo.training.config import TrainConfig

    path = options.config
    path = path / RUN_CONFIG if path.is_dir() else path
    pairs = ["--pairs", *options.pairs] if options.pairs else []
    threads = ["--threads", str(options.threads)] if options.threads is not None else []
    return load(TrainConfig, path, [*options.text, *pairs, *threads])


def _print_verdict(verdict: Verdict) -> None:
    killed = ", ".join(str(step) for step in verdict.killed_at) or "none: it was too quick"
    show(f"steps     {verdict.steps}; one run uninterrupted, one killed after step {killed}")
    show(f"compared  {verdict.tensors} tensors: weights, optimizer state, random generator")
    show(f"          {verdict.numbers} numbers: trainer state, optimizer counters")
    show(f"          {verdict.records} records: losses, gradient norms, the tokens of every batch")
    if verdict.is_exact:
        show("result    all equal, bit for bit")
    else:
        for what in verdict.different[:10]:
            show(f"differs   {what}")
        show(f"result    {len(verdict.different)} differences")
