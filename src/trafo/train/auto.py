"""Settings that suit a text and a machine, for whoever names none.

The vocabulary grows with the text. The model is the largest that can see about 20 ids for each of
its weights (Hoffmann et al., 2022), within the time there is and without reading the text more
often than it is worth (Muennighoff et al., 2023: up to about ten times is nearly as good as new).
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
from trafo.tokenizer.sources import expand_paths
from trafo.tokenizer.token_file import TokenFile
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.train.config import TrainConfig
from trafo.train.ranks import is_first_process

SECONDS = 600.0
"""how long a run takes that nobody has given a budget"""

_IDS_PER_WEIGHT = 20
_EPOCHS = 10
_UTILISATION = 0.45  # of small models, everything included
_BYTES_PER_ID = {512: 2.2, 1024: 2.6, 2048: 3.0, 4096: 3.4, 8192: 3.8, 16384: 4.1, 32768: 4.3}


@dataclass(frozen=True)
class Shape:
    """A size of model, with a batch that suits it."""

    d_model: int
    num_layers: int
    num_heads: int
    context_length: int
    batch_size: int


SHAPES = (
    Shape(64, 2, 2, 64, 16),
    Shape(128, 4, 4, 128, 16),
    Shape(192, 4, 6, 192, 16),
    Shape(256, 6, 8, 256, 16),
    Shape(384, 6, 6, 256, 32),
    Shape(512, 8, 8, 512, 32),
    Shape(768, 12, 12, 1024, 64),
)


def choose(asked: TrainConfig) -> TrainConfig:
    """A config for what was asked to be trained on; flags go over it afterwards."""
    text_bytes, num_ids, vocab = _measure(asked)
    seconds = SECONDS if asked.budget is None else parse_duration(asked.budget)
    flops = measured_peak_flops() * _UTILISATION * seconds
    shape, steps = _fit(num_ids, vocab, flops)
    config = TrainConfig(
        steps=steps,
        batch_size=shape.batch_size,
        model=model_of(shape, vocab),
        optimizer=fast_optimizer(),
    )
    if is_first_process():
        say(_tell(config, text_bytes, asked.budget, flops / seconds))
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


def _measure(asked: TrainConfig) -> tuple[float, int, int]:
    """Bytes of text, about how many ids they make, and the vocabulary."""
    tokenizer = asked.data.tokenizer
    if asked.data.tokens is not None:
        about = TokenFile.open(asked.data.tokens).manifest
        return about.num_bytes, about.num_tokens, about.vocab_size
    if not asked.text:
        raise ConfigError("no text to train on", hint="write trafo train FILE, or give --config")
    text_bytes = sum(path.stat().st_size for path in expand_paths(asked.text))
    if tokenizer is not None:
        vocab = Tokenizer.load(tokenizer).vocab_size
        return text_bytes, round(text_bytes / 4), vocab
    vocab = vocabulary_for(text_bytes)
    return text_bytes, round(text_bytes / _BYTES_PER_ID[vocab]), vocab


def vocabulary_for(text_bytes: float) -> int:
    """A power of two that grows with the square root of the text, from 512 to 32,768."""
    power = round(math.log2(max(text_bytes, 1)) / 2 + 1.5)
    return int(2 ** min(max(power, 9), 15))


def _fit(num_ids: int, vocab: int, flops: float) -> tuple[Shape, int]:
    """The largest shape that this text and this much arithmetic can train, and its steps."""
    fitting = SHAPES[0], 1
    for shape in SHAPES:
        model = model_of(shape, vocab)
        per_step = _flops_per_step(model, shape.batch_size)
        weights = 12 * shape.num_layers * shape.d_model**2
        ids_per_step = shape.batch_size * shape.context_length
        wanted = min(_IDS_PER_WEIGHT * weights, _EPOCHS * num_ids)
        steps = int(min(flops / per_step, max(wanted, _EPOCHS * num_ids) / ids_per_step))
        is_enough = steps * ids_per_step >= 0.8 * wanted
        has_room = num_ids > 20 * shape.context_length
        if shape is SHAPES[0] or (is_enough and has_room):
            fitting = shape, max(steps, 50)
    return fitting


def _flops_per_step(model: TransformerLMConfig, batch_size: int) -> int:
    return account(model, Workload(seq=model.context_length, batch_size=batch_size)).flops


def _seconds(config: TrainConfig, flops_per_second: float) -> float:
    return config.steps * _flops_per_step(config.model, config.batch_size) / flops_per_second
