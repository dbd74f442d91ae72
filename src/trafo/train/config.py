"""Every setting of a training, as one tree: `trafo train --model.d-model 256 ...`.

Each part of the tree is defined beside the code it configures; here they are put together, with
what belongs to the run as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from trafo.data.prepare import DataConfig
from trafo.errors import require, require_at_least
from trafo.models import GPT2Config, TransformerLMConfig
from trafo.optim.config import OptimizerConfig
from trafo.runtime.sizes import parse_duration

Architecture = Literal["transformer-lm", "gpt2"]
Parallel = Literal["ddp", "fsdp"]
NumberType = Literal["float32", "bfloat16"]
Texts = Annotated[Positional[tuple[str, ...]], arg(metavar="TEXT ...")]


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """Logging, validation and samples."""

    log_every: int = 10
    """steps between two records in metrics.jsonl"""
    evaluate_every: int | None = None
    """steps between two validations; None: 20 validations per run"""
    evaluate_tokens: int | None = None
    """tokens per validation, spread evenly over the held-out ones; None: as many as take about 2 %
    of the training time, and ten times as many in the last validation"""
    sample_every: int | None = None
    """steps between two samples; None: 4 samples per run; 0: no samples"""
    prompt: str = ""
    """prompt of the samples; empty: the start of a document, or a line break"""
    sample_tokens: int = 60
    """tokens per sample"""
    norms: bool = False
    """also log the norms of weights, gradients and activations, layer by layer"""
    tensorboard: bool = True
    """write TensorBoard event files into the run's folder"""
    wandb: str | None = None
    """Weights & Biases project to log to; needs the wandb package and a network connection"""

    def __post_init__(self) -> None:
        _at_least(1, self, "watch.", "log_every", "evaluate_every", "evaluate_tokens")
        _at_least(0, self, "watch.", "sample_every", "sample_tokens")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How often to save, and how many checkpoints to keep."""

    every: int | None = None
    """steps between two checkpoints; None: 10 checkpoints per run"""
    keep: int = 2
    """how many of the newest checkpoints to keep; the best one is kept as well"""

    def __post_init__(self) -> None:
        _at_least(1, self, "checkpoint.", "every", "keep")


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """What to run on. None of it changes what is learned, beyond rounding."""

    device: str = "cpu"
    """cpu, cuda, or one GPU such as cuda:1"""
    threads: int | None = None
    """CPU threads per process; None: all cores, divided among the processes"""
    dtype: NumberType = "float32"
    """precision of matrix products; bfloat16 is mixed precision, weights stay in float32"""
    fast: bool = True
    """use the faster versions of the layers and the loss: fused attention, less activation memory;
    false trains the readable model, with the same losses up to rounding"""
    compile: bool = False
    """compile the model with torch.compile: slower to start, a little faster afterwards"""
    parallel: Parallel = "ddp"
    """under torchrun: each process holds a copy of the model (DDP) or a shard of it (FSDP2)"""
    peak_flops: float | None = None
    """peak FLOP/s of the machine, for its utilisation; None: measured by matrix products"""

    def __post_init__(self) -> None:
        _at_least(1, self, "machine.", "threads", "peak_flops")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a language model on text. Sizes are chosen to suit the text and the machine.

    --config FILE takes the settings from a file instead, such as those in configs/. Flags override
    both.
    """

    text: Texts = ()
    """text to train on: files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    out: Path | None = None
    """folder of the run; None: a new one in runs/, named after the text"""
    steps: int = 1000
    """optimizer steps; with a budget, as many as fit into it"""
    budget: str | None = None
    """wall-clock budget such as 10m: the run ends on time, with its learning-rate schedule done"""
    batch_size: int = 16
    """sequences per optimizer step, over all processes and accumulation steps"""
    accumulate: int = 1
    """gradient accumulation steps: less memory, the same result"""
    context_length: int | None = None
    """tokens per training sequence; None: the model's context length"""
    seed: int = 0
    """random seed of the initial weights, batches, dropout and samples"""
    overfit: bool = False
    """train on a single batch again and again, as a check: the loss must go to zero"""
    architecture: Architecture = "transformer-lm"
    """which model to train: transformer-lm has the settings in model, gpt2 those in gpt2"""
    model: TransformerLMConfig = field(default_factory=TransformerLMConfig)
    gpt2: GPT2Config = field(default_factory=GPT2Config)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)

    def __post_init__(self) -> None:
        _at_least(1, self, "", "steps", "batch_size", "accumulate", "context_length")
        require(0 <= self.seed < 2**32, f"seed is {self.seed}", "choose one from 0 to 4294967295")
        require(
            self.batch_size % self.accumulate == 0,
            f"batch_size {self.batch_size} is not a multiple of accumulate {self.accumulate}",
            f"choose a multiple of {self.accumulate}",
        )
        longest = self.model_config.context_length
        require(
            self.seq <= longest,
            f"context_length is {self.seq}, the model takes {longest}",
            f"lower it or raise {self.branch}.context_length",
        )
        is_positive = self.budget is None or parse_duration(self.budget) > 0
        require(is_positive, f"budget is {self.budget}", "give a duration such as 10m")
        is_one = not self.text or self.data.tokens is None
        require(is_one, "both a text and data.tokens are given", "give one of them")

    @property
    def model_config(self) -> TransformerLMConfig | GPT2Config:
        """The config of the model that is trained."""
        return self.gpt2 if self.architecture == "gpt2" else self.model

    @property
    def branch(self) -> str:
        """Its name in the tree."""
        return "gpt2" if self.architecture == "gpt2" else "model"

    @property
    def seq(self) -> int:
        """Tokens per training sequence."""
        return self.context_length or self.model_config.context_length


def _at_least(least: int, config: object, branch: str, *names: str) -> None:
    require_at_least(least, **{branch + name: getattr(config, name) for name in names})
