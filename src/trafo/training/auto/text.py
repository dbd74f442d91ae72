"""Automatic settings: sizes that suit a text, a machine and a time.

Larger models learn more from each token, smaller ones see more tokens in the same time. What loss a
size and a number of tokens lead to is predicted by the scaling law of Hoffmann et al. (2022),

    loss = E + A / parameters^0.34 + B / tokens^0.28

where repeated tokens count for less and less (Muennighoff et al., 2023). The law was fitted to
larger models; here it only has to tell which of a few sizes is best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trafo.account import training_flops
from trafo.errors import require
from trafo.models import TransformerLMConfig
from trafo.optim.config import OptimizerConfig, ScheduleConfig
from trafo.runtime.sizes import format_duration, format_size, parse_duration
from trafo.tokenizer import TokenFile, Tokenizer, open_inputs
from trafo.training.config import MachineConfig, TrainConfig
from trafo.training.machine import device_of, dtype_of, peak_of

SECONDS = 600.0
"""approximate duration of a run without a budget"""

# Of the peak, by small models, everything included: only products are faster in bfloat16.
_UTILISATION = {"float32": 0.45, "bfloat16": 0.3}
_EPOCHS = 10
_PARAMETERS_PER_TOKEN = 8  # with more, a model memorizes the text
_DECAY = 15.4  # epochs in which what repetition is worth falls by a factor of e
_FEWEST_STEPS, _SMALLEST_BATCH = 300, 4
_BYTES_PER_TOKEN = {512: 2.2, 1024: 2.6, 2048: 3.0, 4096: 3.4, 8192: 3.8, 16384: 4.1, 32768: 4.3}


@dataclass(frozen=True)
class Shape:
    """A model size, with a batch size that suits it."""

    d_model: int
    num_layers: int
    num_heads: int
    context_length: int
    batch_size: int

    @property
    def parameters(self) -> int:
        """Parameters of the layers, without embeddings."""
        return 12 * self.num_layers * self.d_model**2

    @property
    def largest_vocabulary(self) -> int:
        """With a larger one, most FLOPs would be in the output layer."""
        return int(2 ** math.floor(math.log2(12 * self.num_layers * self.d_model)))


@dataclass(frozen=True)
class Choice:
    """A shape, and how it would be trained."""

    shape: Shape
    vocab: int
    batch_size: int
    steps: int
    loss: float
    """as predicted by the scaling law"""


SHAPES = (
    Shape(64, 2, 2, 64, 32),
    Shape(96, 3, 3, 96, 32),
    Shape(128, 4, 4, 128, 32),
    Shape(192, 4, 6, 128, 32),
    Shape(256, 4, 8, 256, 16),
    Shape(256, 6, 8, 256, 32),
    Shape(384, 6, 6, 256, 32),
    Shape(512, 8, 8, 512, 32),
    Shape(768, 12, 12, 1024, 64),
)


def choose(asked: TrainConfig) -> TrainConfig:
    """A config that suits the text and the budget of `asked`; flags override it afterwards."""
    seconds = SECONDS if asked.budget is None else parse_duration(asked.budget)
    choice = best_choice(_measure(asked), _flops_per_second(asked) * seconds)
    return TrainConfig(
        steps=choice.steps,
        batch_size=choice.batch_size,
        model=model_of(choice.shape, choice.vocab),
        optimizer=fast_optimizer(),
        machine=MachineConfig(dtype=dtype_of(asked.machine)),
    )


def describe(config: TrainConfig) -> str:
    """Describe the settings that decide what is learned."""
    model = config.language_model
    flops = training_flops(model, config.seq, config.batch_size)
    seconds = config.steps * flops / _flops_per_second(config)
    return ", ".join(
        [
            f"for {format_size(_measure(config).num_bytes)} of text and {format_peak(config)}: "
            f"{config.architecture}",
            f"vocabulary {model.vocab_size:,}",
            f"{model.num_layers} layers of {model.d_model} with {model.num_heads} heads",
            *(["zero-initialized outputs"] if getattr(model, "zero_init_outputs", False) else []),
            f"context length {config.seq}",
            f"batch size {config.batch_size}",
            format_steps(config, seconds),
            *format_optimizer(config.optimizer),
        ]
    )


def format_steps(config: TrainConfig, seconds: float) -> str:
    """The steps with the time they are expected to take, or the budget."""
    if config.budget is not None:
        return f"steps for {config.budget}"
    return f"{config.steps:,} steps (about {format_duration(seconds)})"


def format_optimizer(optimizer: OptimizerConfig) -> list[str]:
    """Optimizer and rates, and the schedule."""
    muon = f"muon {optimizer.muon_lr:g}, adamw " if optimizer.name == "muon" else ""
    rates = f"{optimizer.name} (learning rate {muon}{optimizer.lr:g})"
    return [rates, f"{optimizer.schedule.name} schedule"]


def format_peak(config: TrainConfig) -> str:
    """The machine's peak, and when it was measured."""
    if given := config.machine.peak_flops:
        return f"{given:.3g} FLOP/s"
    dtype = dtype_of(config.machine)
    peak = peak_of(device_of(config.machine), dtype)
    return f"{peak.flops:.3g} {dtype} FLOP/s, measured {peak.measured}"


def peak_flops(config: TrainConfig) -> float:
    """The machine's peak, given or measured."""
    machine = config.machine
    return machine.peak_flops or peak_of(device_of(machine), dtype_of(machine)).flops


def _flops_per_second(config: TrainConfig) -> float:
    return peak_flops(config) * _UTILISATION[dtype_of(config.machine)]


def model_of(shape: Shape, vocab: int) -> TransformerLMConfig:
    """The model config of a shape, with the options that learned fastest; see docs/log.md."""
    return TransformerLMConfig(
        vocab_size=vocab,
        context_length=shape.context_length,
        d_model=shape.d_model,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        zero_init_outputs=True,
    )


def fast_optimizer() -> OptimizerConfig:
    """Muon for matrices, AdamW for the rest, with the warmup-stable-decay (WSD) schedule."""
    return OptimizerConfig(name="muon", lr=5e-3, schedule=ScheduleConfig(name="linear"))


@dataclass(frozen=True)
class Text:
    """What is known about a text before it is encoded."""

    num_bytes: float
    vocab: int | None = None
    """of a tokenizer, if one is given"""
    num_tokens: int | None = None
    """if it has been encoded"""

    def tokens(self, vocab: int) -> float:
        """Its length in tokens; estimated, unless it has been encoded."""
        if self.num_tokens is not None:
            return self.num_tokens
        return self.num_bytes / _BYTES_PER_TOKEN.get(vocab, 4.0)


def _measure(asked: TrainConfig) -> Text:
    if asked.data.tokens is not None:
        about = TokenFile.open(asked.data.tokens).manifest
        return Text(about.num_bytes, about.vocab_size, about.num_tokens)
    require(bool(asked.text), "no text to train on", "give a text file: trafo train FILE")
    num_bytes = open_inputs(asked.text).size
    if asked.data.tokenizer is None:
        return Text(num_bytes)
    return Text(num_bytes, Tokenizer.load(asked.data.tokenizer).vocab_size)


def vocabulary_for(text_bytes: float) -> int:
    """A power of two that grows with the square root of the text, from 512 to 32,768."""
    power = round(math.log2(max(text_bytes, 1)) / 2 + 1.5)
    return int(2 ** min(max(power, 9), 15))


def best_choice(text: Text, flops: float) -> Choice:
    """The shape for which the scaling law predicts the lowest loss."""
    choices = [_choice(shape, text, flops) for shape in SHAPES]
    # The smallest one has to do if the text is too short for any.
    return min(filter(None, choices), key=lambda choice: choice.loss, default=_least(text))


def _choice(shape: Shape, text: Text, flops: float) -> Choice | None:
    """How this shape would be trained; None if the text is too short for it."""
    vocab = text.vocab or min(vocabulary_for(text.num_bytes), shape.largest_vocabulary)
    num_tokens = text.tokens(vocab)
    fewest = max(20 * shape.context_length, shape.parameters / _PARAMETERS_PER_TOKEN)
    if num_tokens < fewest:
        return None
    model = model_of(shape, vocab)
    per_token = training_flops(model, shape.context_length) / shape.context_length
    trained = min(flops / per_token, _EPOCHS * num_tokens)
    batch_size = shape.batch_size
    while (
        batch_size > _SMALLEST_BATCH and trained < _FEWEST_STEPS * batch_size * model.context_length
    ):
        batch_size //= 2
    steps = max(1, round(trained / (batch_size * shape.context_length)))
    loss = _predicted_loss(shape.parameters, num_tokens, trained)
    return Choice(shape, vocab, batch_size, steps, loss)


def _predicted_loss(parameters: float, num_tokens: float, trained: float) -> float:
    repetitions = max(0.0, trained / num_tokens - 1)
    fresh = min(trained, num_tokens)
    worth = fresh * (1 + _DECAY * (1 - math.exp(-repetitions / _DECAY)))
    return float(1.69 + 406.4 / parameters**0.34 + 410.7 / worth**0.28)


def _least(text: Text) -> Choice:
    shape = SHAPES[0]
    return Choice(shape, text.vocab or 512, _SMALLEST_BATCH, _FEWEST_STEPS, math.inf)
