"""Automatic settings for translation: a size that suits the sentence pairs and the time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trafo.account import Workload, account
from trafo.data.pairs import grouped_files
from trafo.data.prepare_pairs import TranslationConfig
from trafo.errors import InputError
from trafo.models import EncoderDecoderConfig, RecurrentConfig
from trafo.runtime.console import say
from trafo.runtime.sizes import format_duration, format_size, parse_duration
from trafo.train.auto import SECONDS, fast_optimizer
from trafo.train.config import TrainConfig
from trafo.train.distributed import is_first_process
from trafo.train.fit_memory import SENTENCE
from trafo.train.machine import peak_of

_UTILISATION = 0.2  # of the peak: sentences are short, so are the rows of most products
_EPOCHS = 20
_BYTES_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Shape:
    """A model size, for sentence pairs of at least `num_bytes`."""

    num_bytes: float
    d_model: int
    num_layers: int
    num_heads: int
    vocab: int
    dropout: float


SHAPES = (
    Shape(0, 64, 2, 4, 1000, 0.3),
    Shape(3e5, 128, 3, 4, 5000, 0.3),
    Shape(2e7, 256, 4, 8, 8000, 0.2),
    Shape(2e8, 512, 6, 8, 16000, 0.1),
)


def choose_for_pairs(asked: TrainConfig) -> TrainConfig:
    """A config that suits the pairs and the budget of `asked`; flags override it afterwards."""
    num_bytes, shape = _size_and_shape(asked)
    return TrainConfig(
        architecture="recurrent" if asked.architecture == "recurrent" else "encoder-decoder",
        label_smoothing=0.1,
        encoder_decoder=_transformer(shape),
        recurrent=_recurrent(shape),
        translation=TranslationConfig(),
        optimizer=fast_optimizer(),
        steps=_steps(shape, num_bytes, asked.budget),
    )


def tell_of_pairs(config: TrainConfig, asked: TrainConfig) -> None:
    """Print what was chosen, once it is known that the files and flags can be used."""
    if is_first_process():
        num_bytes, shape = _size_and_shape(asked)
        say(_tell(config, shape, num_bytes, asked.budget))


def _size_and_shape(asked: TrainConfig) -> tuple[int, Shape]:
    num_bytes = sum(map(_size, asked.pairs))
    for _ in grouped_files(asked.pairs):
        pass  # one side without the other is refused
    return num_bytes, max(
        (s for s in SHAPES if s.num_bytes <= num_bytes), key=lambda s: s.num_bytes
    )


def _size(path: str) -> int:
    if not Path(path).is_file():
        raise InputError("no such file", where=path)
    return Path(path).stat().st_size


def _transformer(shape: Shape) -> EncoderDecoderConfig:
    return EncoderDecoderConfig(
        source_vocab_size=shape.vocab,
        target_vocab_size=shape.vocab,
        d_model=shape.d_model,
        num_encoder_layers=shape.num_layers,
        num_decoder_layers=shape.num_layers,
        num_heads=shape.num_heads,
        d_ff=4 * shape.d_model,
        norm_placement="pre",
        shared_embeddings="all",
        dropout=shape.dropout,
    )


def _recurrent(shape: Shape) -> RecurrentConfig:
    return RecurrentConfig(
        source_vocab_size=shape.vocab,
        target_vocab_size=shape.vocab,
        d_model=shape.d_model,
        d_hidden=2 * shape.d_model,
        dropout=shape.dropout,
    )


def _steps(shape: Shape, num_bytes: float, budget: str | None) -> int:
    """As many as fit into the budget, but no more than some epochs."""
    tokens = TranslationConfig().batch_tokens
    seconds = SECONDS if budget is None else parse_duration(budget)
    per_epoch = max(1.0, num_bytes / 2 / _BYTES_PER_TOKEN / tokens)
    return max(100, round(min(_EPOCHS * per_epoch, seconds / _seconds_per_step(shape, tokens))))


def _seconds_per_step(shape: Shape, tokens: int) -> float:
    work = Workload(seq=SENTENCE, batch_size=tokens // SENTENCE)
    return account(_transformer(shape), work).flops / (peak_of().flops * _UTILISATION)


def _tell(config: TrainConfig, shape: Shape, num_bytes: float, budget: str | None) -> str:
    seconds = config.steps * _seconds_per_step(shape, config.translation.batch_tokens)
    clock = format_duration(seconds)
    steps = f"{config.steps:,} steps, about {clock}" if budget is None else f"steps for {budget}"
    return (
        f"chosen for {format_size(num_bytes)} of sentence pairs on this machine: "
        f"vocabulary {shape.vocab:,}, {shape.num_layers} + {shape.num_layers} layers of "
        f"{shape.d_model}, {steps}; any flag changes it"
    )
