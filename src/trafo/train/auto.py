"""Settings that suit a text and a machine, for whoever names none.

Larger models learn more from each id, smaller ones see more ids in the same time. What a size and a
number of ids lead to is predicted by the law that Hoffmann et al. (2022) have fitted,

    loss = E + A / weights^0.34 + B / ids^0.28

where ids that come again count for less and less (Muennighoff et al., 2023). The law was fitted to
larger models; here it only has to tell which of a few sizes is best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trafo.account import Workload, account
from trafo.account.peak import measured_peak_flops
from trafo.errors import ConfigError
from trafo.models import TransformerLMConfig
from trafo.optim.config import OptimizerConfig, ScheduleConfig
from trafo.runtime.console import say
from trafo.runtime.sizes import format_duration, format_size, parse_duration
from trafo.tokenizer import TokenFile, Tokenizer, expand_paths
from trafo.train.config import TrainConfig
from trafo.train.distributed import is_first_process

SECONDS = 600.0
"""how long a run takes that nobody has given a budget"""

_UTILISATION = 0.45  # of small models, everything included
_EPOCHS = 10
_WEIGHTS_PER_ID = 8  # with more, a model learns the text by heart
_FORGETTING = 15.4  # repetitions after which nothing is left to learn from more of them
_FEWEST_STEPS, _SMALLEST_BATCH = 300, 4
_BYTES_PER_ID = {512: 2.2, 1024: 2.6, 2048: 3.0, 4096: 3.4, 8192: 3.8, 16384: 4.1, 32768: 4.3}


@dataclass(frozen=True)
class Shape:
    """A size of model, with a batch that suits it."""

    d_model: int
    num_layers: int
    num_heads: int
    context_length: int
    batch_size: int

    @property
    def weights(self) -> int:
        """Those of the layers."""
        return 12 * self.num_layers * self.d_model**2

    @property
    def largest_vocabulary(self) -> int:
        """With more, most of the work would be the head's."""
        return int(2 ** math.floor(math.log2(12 * self.num_layers * self.d_model)))


@dataclass(frozen=True)
class Choice:
    """A shape, and how it would be trained."""

    shape: Shape
    vocab: int
    batch_size: int
    steps: int
    loss: float
    """what the law predicts"""


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
    """A config for what was asked to be trained on; flags go over it afterwards."""
    text = _measure(asked)
    seconds = SECONDS if asked.budget is None else parse_duration(asked.budget)
    flops_per_second = measured_peak_flops() * _UTILISATION
    choice = best_choice(text, flops_per_second * seconds)
    config = TrainConfig(
        steps=choice.steps,
        batch_size=choice.batch_size,
        model=model_of(choice.shape, choice.vocab),
        optimizer=fast_optimizer(),
    )
    if is_first_process():
        say(_tell(config, text.num_bytes, asked.budget, flops_per_second))
    return config


def _tell(
    config: TrainConfig, text_bytes: float, budget: str | None, flops_per_second: float
) -> str:
    """What was chosen, in a line."""
    model = config.model
    clock = format_duration(_seconds(config, flops_per_second))
    steps = f"{config.steps:,} steps, about {clock}" if budget is None else f"steps for {budget}"
    return (
        f"chosen for {format_size(text_bytes)} of text on this machine: "
        f"vocabulary {model.vocab_size:,}, {model.num_layers} layers of {model.d_model}, "
        f"context {model.context_length}, batches of {config.batch_size}, {steps}; "
        "any flag changes it"
    )


def model_of(shape: Shape, vocab: int) -> TransformerLMConfig:
    """The switches are those that learned fastest here; see docs/log.md."""
    return TransformerLMConfig(
        vocab_size=vocab,
        context_length=shape.context_length,
        d_model=shape.d_model,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        qk_norm=True,
        zero_init_outputs=True,
    )


def fast_optimizer() -> OptimizerConfig:
    """Muon for matrices, AdamW for the rest, falling in a line to zero."""
    return OptimizerConfig(name="muon", lr=5e-3, schedule=ScheduleConfig(name="linear"))


@dataclass(frozen=True)
class Text:
    """What is known about a text before it is encoded."""

    num_bytes: float
    vocab: int | None = None
    """of a tokenizer that is given"""
    num_ids: int | None = None
    """if they have been counted"""

    def ids(self, vocab: int) -> float:
        """How many ids it is about to have."""
        if self.num_ids is not None:
            return self.num_ids
        return self.num_bytes / _BYTES_PER_ID.get(vocab, 4.0)


def _measure(asked: TrainConfig) -> Text:
    if asked.data.tokens is not None:
        about = TokenFile.open(asked.data.tokens).manifest
        return Text(about.num_bytes, about.vocab_size, about.num_tokens)
    if not asked.text:
        raise ConfigError("no text to train on", hint="write trafo train FILE, or give --config")
    num_bytes = sum(path.stat().st_size for path in expand_paths(asked.text))
    if asked.data.tokenizer is None:
        return Text(num_bytes)
    return Text(num_bytes, Tokenizer.load(asked.data.tokenizer).vocab_size)


def vocabulary_for(text_bytes: float) -> int:
    """A power of two that grows with the square root of the text, from 512 to 32,768."""
    power = round(math.log2(max(text_bytes, 1)) / 2 + 1.5)
    return int(2 ** min(max(power, 9), 15))


def best_choice(text: Text, flops: float) -> Choice:
    """The shape for which the law predicts the lowest loss."""
    choices = [_choice(shape, text, flops) for shape in SHAPES]
    # The first and smallest one must do if the text is too short for any.
    return min(filter(None, choices), key=lambda choice: choice.loss, default=_least(text))


def _choice(shape: Shape, text: Text, flops: float) -> Choice | None:
    """How this shape would be trained; None if the text is too short for it."""
    vocab = text.vocab or min(vocabulary_for(text.num_bytes), shape.largest_vocabulary)
    num_ids = text.ids(vocab)
    if num_ids < 20 * shape.context_length or shape.weights > _WEIGHTS_PER_ID * num_ids:
        return None
    model = model_of(shape, vocab)
    per_id = _flops_per_step(model, 1) / shape.context_length
    trained = min(flops / per_id, _EPOCHS * num_ids)
    batch_size = shape.batch_size
    while (
        batch_size > _SMALLEST_BATCH and trained < _FEWEST_STEPS * batch_size * model.context_length
    ):
        batch_size //= 2
    steps = max(1, round(trained / (batch_size * shape.context_length)))
    return Choice(shape, vocab, batch_size, steps, _predicted_loss(shape.weights, num_ids, trained))


def _predicted_loss(weights: float, num_ids: float, trained: float) -> float:
    repetitions = max(0.0, trained / num_ids - 1)
    fresh = min(trained, num_ids)
    worth = fresh * (1 + _FORGETTING * (1 - math.exp(-repetitions / _FORGETTING)))
    return float(1.69 + 406.4 / weights**0.34 + 410.7 / worth**0.28)


def _least(text: Text) -> Choice:
    shape = SHAPES[0]
    return Choice(shape, text.vocab or 512, _SMALLEST_BATCH, _FEWEST_STEPS, math.inf)


def _flops_per_step(model: TransformerLMConfig, batch_size: int) -> int:
    return account(model, Workload(seq=model.context_length, batch_size=batch_size)).flops


def _seconds(config: TrainConfig, flops_per_second: float) -> float:
    return config.steps * _flops_per_step(config.model, config.batch_size) / flops_per_second
