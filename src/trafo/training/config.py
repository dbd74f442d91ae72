"""Every setting of a training run, as one tree: `trafo train --model.d-model 256 ...`.

Each part of the tree is defined beside the code it configures; here they are put together, with
what belongs to the run as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from trafo.config import Argument, Positional
from trafo.data.prepare import DataConfig
from trafo.data.prepare_pairs import TranslationConfig
from trafo.errors import require, require_at_least
from trafo.generate.beam_config import BeamConfig
from trafo.models import (
    EncoderDecoderConfig,
    GPT2Config,
    ModelConfig,
    RecurrentConfig,
    TransformerLMConfig,
)
from trafo.optim.config import OptimizerConfig
from trafo.runtime.process import check_seed
from trafo.runtime.sizes import parse_duration

Architecture = Literal["transformer-lm", "gpt2", "encoder-decoder", "recurrent"]
Parallel = Literal["ddp", "fsdp"]
Precision = Literal["float32", "bfloat16"]
Texts = Annotated[Positional[tuple[str, ...]], Argument(metavar="TEXT ...")]
Paths = Annotated[tuple[str, ...], Argument(metavar="PATH ...")]


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """Logging, validation and samples."""

    log_every: int = 10
    """steps between two records in metrics.jsonl"""
    evaluate_every: int | None = None
    """steps between two validations; None: 20 validations per run, or fewer if they would take more
    than 5 % of the time"""
    evaluate_tokens: int | None = None
    """tokens per validation, the same each time, spread evenly over the held-out ones; None: enough
    for a standard error of about 1 %, within 5 % of the training time, and at the end all held-out
    ones if they take less than 2 %"""
    sample_every: int | None = None
    """steps between two samples; None: 4 samples per run; 0: no samples"""
    prompt: Annotated[str, Argument(aliases=("--prompt",))] = ""
    """prompt of the samples; empty: the start of a document, or a line break"""
    sample_tokens: int = 60
    """tokens per sample"""
    bleu_sentences: int = 200
    """validation sentences that a translation model translates greedily for BLEU; 0: none"""
    patience: int | None = None
    """early stopping: end after this many validations without a better BLEU, or validation loss
    where BLEU is not measured; None: never"""
    norms: bool = False
    """also log the norms of weights, gradients and activations, layer by layer"""
    tensorboard: bool = True
    """write TensorBoard event files into the run's folder"""
    wandb: str | None = None
    """Weights & Biases project to log to; needs the wandb package and a network connection"""

    def __post_init__(self) -> None:
        _at_least(1, self, "watch.", "log_every", "evaluate_every", "evaluate_tokens", "patience")
        _at_least(0, self, "watch.", "sample_every", "sample_tokens", "bleu_sentences")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints: how often to save, how many to keep, and averaging."""

    every: int | None = None
    """steps between two checkpoints; None: 10 checkpoints per run"""
    keep: int = 2
    """number of newest checkpoints to keep; the best one is kept as well"""
    average: int = 1
    """checkpoint averaging: at the end, also save the mean of the weights of this many of the
    newest checkpoints, which the run is then used with; 1: none"""

    def __post_init__(self) -> None:
        _at_least(1, self, "checkpoint.", "every", "keep", "average")


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """Device, precision and speed. None of it changes what is learned, beyond rounding."""

    device: str | None = None
    """cpu, cuda, or one GPU such as cuda:1; None: a GPU if there is one, else the CPU"""
    threads: Annotated[int | None, Argument(aliases=("--threads",), metavar="INT")] = None
    """CPU threads per process; None: the fastest number, found by timing the steps, or the cores
    divided among several processes. Sums may round differently with another number: set it where
    a resumed run must be the same in every bit"""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """precision of matrix products; bfloat16 is mixed precision, weights stay in float32; auto:
    bfloat16 where the processor multiplies it much faster, else float32"""
    fast: bool = True
    """use the faster versions of the layers and the loss: fused attention, less activation memory;
    false trains the readable model, with the same losses up to rounding"""
    compile: bool = False
    """compile the model with torch.compile: slower to start, a little faster afterwards"""
    parallel: Parallel = "ddp"
    """under torchrun: each process holds a copy of the model (DDP) or a shard of it (FSDP2)"""
    peak_flops: float | None = None
    """peak FLOP/s of the machine, for its utilisation and for automatic sizes; None: measured
    by matrix products and kept in ~/.cache/trafo/machine.json until it is seen to be much higher"""

    def __post_init__(self) -> None:
        _at_least(1, self, "machine.", "threads", "peak_flops")


def find_branch(architecture: str) -> str:
    """Find the branch of the tree with the settings of a model."""
    return "model" if architecture == "transformer-lm" else architecture.replace("-", "_")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a language model on text, or a translation model on sentence pairs.

    Automatic settings are chosen to suit the data and the machine. --config FILE takes settings
    from a file instead, such as those in configs/, and the defaults hold for the rest. Flags
    override both. --show-config prints all settings and exits.
    """

    text: Texts = ()
    """text to train on: files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    pairs: Paths = ()
    """sentence pairs to train on: two aligned files such as train.en train.de, .tsv, or .jsonl;
    also .gz, .zst, and several after each other"""
    validation: Paths = ()
    """texts or sentence pairs for validation, instead of the end of the training data"""
    out: Path | None = None
    """folder of the run; None: a new one in runs/, named after the data"""
    steps: int = 1000
    """training steps (updates); with a budget, as many as fit into it"""
    budget: str | None = None
    """wall-clock budget such as 10m, from the start of the run: it ends on time, with its
    learning-rate schedule done"""
    batch_size: int = 16
    """batch size (sequences per update), over all processes and accumulation steps; for sentence
    pairs see translation.batch_tokens"""
    accumulate: int = 1
    """gradient accumulation steps per update: less memory, the same result"""
    context_length: int | None = None
    """tokens per training sequence; None: the model's context length"""
    seed: int = 0
    """random seed of the initial weights, batches, dropout and samples"""
    label_smoothing: float = 0.0
    """label smoothing: fraction of the target probability spread over all tokens"""
    overfit: bool = False
    """overfit a single batch, as a check: the loss must go to zero"""
    architecture: Architecture = "transformer-lm"
    """which model to train: transformer-lm has the settings in model, each other one those of its
    own name; encoder-decoder and recurrent translate"""
    model: TransformerLMConfig = field(default_factory=TransformerLMConfig)
    gpt2: GPT2Config = field(default_factory=GPT2Config)
    encoder_decoder: EncoderDecoderConfig = field(default_factory=EncoderDecoderConfig)
    recurrent: RecurrentConfig = field(default_factory=RecurrentConfig)
    data: DataConfig = field(default_factory=DataConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)
    decoding: BeamConfig = field(default_factory=BeamConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)

    def __post_init__(self) -> None:
        _at_least(1, self, "", "steps", "batch_size", "accumulate", "context_length")
        check_seed(self.seed)
        smoothing = self.label_smoothing
        require(0 <= smoothing < 1, f"label_smoothing is {smoothing}", "choose from 0 to 1")
        is_even = self.translates or self.batch_size % self.accumulate == 0
        require(
            is_even,
            f"batch_size {self.batch_size} is not a multiple of accumulate {self.accumulate}",
            f"choose a multiple of {self.accumulate}",
        )
        longest = self.model_config.context_length
        require(
            longest is None or self.seq <= longest,
            f"{'translation.max_tokens' if self.translates else 'context_length'} is {self.seq}, "
            f"the model takes {longest}",
            f"lower it or raise {self.branch}.context_length",
        )
        is_positive = self.budget is None or parse_duration(self.budget) > 0
        require(is_positive, f"budget is {self.budget}", "give a duration such as 10m")
        sources = {"a text": self.text, "pairs": self.pairs, "data.tokens": self.data.tokens}
        given = [name for name, value in sources.items() if value]
        is_one = len(given) < 2
        require(is_one, f"{' and '.join(given)} are given", "give one of them")

    @property
    def branch(self) -> str:
        """The branch of the tree with the settings of the model."""
        return find_branch(self.architecture)

    @property
    def model_config(self) -> ModelConfig:
        """The config of the model that is trained."""
        config: ModelConfig = getattr(self, self.branch)
        return config

    @property
    def language_model(self) -> TransformerLMConfig | GPT2Config:
        """`model_config`, where it can only be a language model."""
        return self.gpt2 if self.architecture == "gpt2" else self.model

    @property
    def translator(self) -> EncoderDecoderConfig | RecurrentConfig:
        """`model_config`, where it can only be a translation model."""
        return self.recurrent if self.architecture == "recurrent" else self.encoder_decoder

    @property
    def translates(self) -> bool:
        """Whether the model is a translation model."""
        return self.architecture in ("encoder-decoder", "recurrent")

    @property
    def seq(self) -> int:
        """Tokens per training sequence; of a sentence, at most."""
        if self.translates:
            return self.translation.max_tokens
        return self.context_length or self.language_model.context_length


SHORT_NAMES = {
    "--d-model": ("d_model",),
    "--layers": ("num_layers", "num_encoder_layers", "num_decoder_layers"),
    "--heads": ("num_heads",),
    "--vocab-size": ("vocab_size", "source_vocab_size", "target_vocab_size"),
}
"""short flags, and the settings of the model that is trained which they stand for"""

FIXED, CHANGEABLE = False, True
ON_RESUME: dict[str, bool] = {
    # What was learned depends on it, or what the optimizer keeps, or nothing does any more.
    "architecture": FIXED,
    "model": FIXED,
    "gpt2": FIXED,
    "encoder_decoder": FIXED,
    "recurrent": FIXED,
    "optimizer.name": FIXED,
    "seed": FIXED,
    "out": FIXED,
    # Which tokens are trained on and which are held out; validation losses must stay comparable.
    "context_length": FIXED,
    "data.pattern": FIXED,
    "data.field": FIXED,
    "data.errors": FIXED,
    "data.held_out": FIXED,
    "translation.joint": FIXED,
    "translation.lowercase": FIXED,
    "translation.max_tokens": FIXED,
    # Where the data is. That it is the same is checked by its hash.
    "text": CHANGEABLE,
    "pairs": CHANGEABLE,
    "validation": CHANGEABLE,
    "data.tokens": CHANGEABLE,
    "data.tokenizer": CHANGEABLE,
    "data.cache": CHANGEABLE,
    "translation.source_field": CHANGEABLE,
    "translation.target_field": CHANGEABLE,
    # How training continues.
    "steps": CHANGEABLE,
    "budget": CHANGEABLE,
    "batch_size": CHANGEABLE,
    "accumulate": CHANGEABLE,
    "translation.batch_tokens": CHANGEABLE,
    "label_smoothing": CHANGEABLE,
    "overfit": CHANGEABLE,
    "model.dropout": CHANGEABLE,
    "gpt2.dropout": CHANGEABLE,
    "encoder_decoder.dropout": CHANGEABLE,
    "encoder_decoder.attention_dropout": CHANGEABLE,
    "recurrent.dropout": CHANGEABLE,
    "optimizer.lr": CHANGEABLE,
    "optimizer.embedding_lr": CHANGEABLE,
    "optimizer.head_lr": CHANGEABLE,
    "optimizer.muon_lr": CHANGEABLE,
    "optimizer.muon_momentum": CHANGEABLE,
    "optimizer.betas": CHANGEABLE,
    "optimizer.eps": CHANGEABLE,
    "optimizer.weight_decay": CHANGEABLE,
    "optimizer.max_grad_norm": CHANGEABLE,
    "optimizer.schedule": CHANGEABLE,
    # What is done with the model, and on which machine.
    "decoding": CHANGEABLE,
    "watch": CHANGEABLE,
    "checkpoint": CHANGEABLE,
    "machine": CHANGEABLE,
}
"""which settings of a run may change when it is resumed; a branch stands for all keys below it"""


def can_change(key: str) -> bool:
    """Whether a run may be resumed with another value of this setting."""
    while key not in ON_RESUME:
        key = key.rpartition(".")[0]
    return ON_RESUME[key]


def _at_least(least: int, config: object, branch: str, *names: str) -> None:
    require_at_least(least, **{branch + name: getattr(config, name) for name in names})
