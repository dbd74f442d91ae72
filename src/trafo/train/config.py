"""Everything a training can be told, as one tree: `trafo train --model.d-model 256 ...`.

Each part of the tree stands beside the code it configures; here they are put together, with what
belongs to the run as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from trafo.data.prepare import DataConfig
from trafo.errors import ConfigError
from trafo.models import GPT2Config, TransformerLMConfig
from trafo.optim.config import OptimizerConfig
from trafo.runtime.sizes import parse_duration

Architecture = Literal["transformer-lm", "gpt2"]
Parallel = Literal["ddp", "fsdp"]
NumberType = Literal["float32", "bfloat16"]
Texts = Annotated[Positional[tuple[str, ...]], arg(metavar="TEXT ...")]


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """How often to look, and where to write what is seen."""

    log_every: int = 10
    """steps between two entries in metrics.jsonl"""
    evaluate_every: int | None = None
    """steps between two validations; None: 20 in a run"""
    evaluate_tokens: int | None = None
    """ids of a validation, spread evenly over those held out; None: so many that all validations
    together take about 2 % of the time, the last one with ten times as many as the others"""
    sample_every: int | None = None
    """steps between two samples; None: 4 in a run. 0: never"""
    prompt: str = ""
    """how samples begin; empty: at the start of a document, or with a line break"""
    sample_tokens: int = 60
    """ids of a sample"""
    norms: bool = False
    """also record the norms of weights, gradients and activations, layer by layer"""
    tensorboard: bool = True
    """write events for TensorBoard into the run's folder"""
    wandb: str | None = None
    """a project at Weights & Biases to report to; it needs the package and the network"""

    def __post_init__(self) -> None:
        _at_least(1, self, "watch", "log_every", "evaluate_every", "evaluate_tokens")
        _at_least(0, self, "watch", "sample_every", "sample_tokens")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How often to save, and how much to keep."""

    every: int | None = None
    """steps between two checkpoints; None: 10 in a run"""
    keep: int = 2
    """how many of the newest stay; the best one stays as well"""

    def __post_init__(self) -> None:
        _at_least(1, self, "checkpoint", "every", "keep")


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """What to run on. None of it changes what is learned, beyond rounding."""

    device: str = "cpu"
    """cpu, cuda, or a device by its number such as cuda:1"""
    threads: int | None = None
    """threads of a process; None: as many as cores, shared by the processes"""
    dtype: NumberType = "float32"
    """what matrix products are computed in; weights stay in float32"""
    compile: bool = False
    """let torch compile the model: some time at the start, a little faster afterwards"""
    parallel: Parallel = "ddp"
    """under torchrun: every process holds the whole model (ddp) or a part of it (fsdp)"""
    peak_flops: float | None = None
    """FLOP/s that count as the whole machine; None: what its matrix products reach when tried"""

    def __post_init__(self) -> None:
        _at_least(1, self, "machine", "threads", "peak_flops")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a language model on text. Sizes are chosen to suit the text and the machine.

    --config FILE takes them from a file instead, such as those in configs/. Flags go over both.
    """

    text: Texts = ()
    """what to train on: files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    out: Path | None = None
    """the run's folder; None: a new one in runs/, named after the text"""
    steps: int = 1000
    """updates of the weights; with a budget, what fits into it"""
    budget: str | None = None
    """how long the run may take, such as 10m; it ends on time, its learning rate at the floor"""
    batch_size: int = 16
    """sequences that make up one update, over all processes"""
    accumulate: int = 1
    """parts in which a process computes its share of a batch: less memory, the same result"""
    context_length: int | None = None
    """ids of a sequence in training; None: as many as the model can take"""
    seed: int = 0
    """decides the first weights, the batches, dropout and samples"""
    overfit: bool = False
    """train on one batch again and again: if its loss does not go to zero, something is wrong"""
    architecture: Architecture = "transformer-lm"
    """which of the two models below is trained"""
    model: TransformerLMConfig = field(default_factory=TransformerLMConfig)
    gpt2: GPT2Config = field(default_factory=GPT2Config)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)

    def __post_init__(self) -> None:
        _at_least(1, self, "", "steps", "batch_size", "accumulate", "context_length")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed is {self.seed}", hint="choose one from 0 to 4294967295")
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"batch_size {self.batch_size} cannot be split into accumulate {self.accumulate}",
                hint="choose a batch_size that accumulate divides",
            )
        if self.seq > self.lm.context_length:
            raise ConfigError(
                f"context_length is {self.seq}, the model takes {self.lm.context_length}",
                hint=f"lower it or raise {self.branch}.context_length",
            )
        if self.budget is not None and parse_duration(self.budget) <= 0:
            raise ConfigError(f"budget is {self.budget}", hint="give a time such as 10m")
        if self.text and self.data.tokens is not None:
            raise ConfigError("both a text and data.tokens are given", hint="give one of them")

    @property
    def lm(self) -> TransformerLMConfig | GPT2Config:
        """The config of the model that is trained."""
        return self.gpt2 if self.architecture == "gpt2" else self.model

    @property
    def branch(self) -> str:
        """Where that config stands in the tree."""
        return "gpt2" if self.architecture == "gpt2" else "model"

    @property
    def seq(self) -> int:
        """Ids of a training sequence."""
        return self.context_length or self.lm.context_length

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq


def _at_least(least: int, config: object, branch: str, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value < least:
            key = f"{branch}.{name}" if branch else name
            raise ConfigError(f"{key} is {value}", hint=f"it must be at least {least}")
