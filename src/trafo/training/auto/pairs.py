"""Automatic settings for translation: a size that suits the sentence pairs and the time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trafo.account import Workload, account
from trafo.data.pairs import grouped_files, read_pairs
from trafo.data.prepare_pairs import TranslationConfig
from trafo.errors import InputError
from trafo.models import EncoderDecoderConfig, RecurrentConfig
from trafo.runtime.sizes import format_size, parse_duration
from trafo.training.auto.text import (
    SECONDS,
    fast_optimizer,
    format_optimizer,
    format_peak,
    format_steps,
    peak_flops,
)
from trafo.training.config import MachineConfig, TrainConfig
from trafo.training.fit_memory import SENTENCE
from trafo.training.machine import dtype_of

# Of the peak: sentences are short, so are the rows of most products.
_UTILISATION = {"float32": 0.2, "bfloat16": 0.13}
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
        steps=_steps(shape, num_bytes, asked),
        machine=MachineConfig(dtype=dtype_of(asked.machine)),
    )


def _size_and_shape(asked: TrainConfig) -> tuple[int, Shape]:
    num_bytes = sum(map(_size, asked.pairs))
    for _ in grouped_files(asked.pairs):
        pass  # one side without the other is refused
    return num_bytes, max(
        (s for s in SHAPES if s.num_bytes <= num_bytes), key=lambda s: s.num_bytes
    )


def _size(path: str) -> int:
    if not Path(path).exists():
        raise InputError("no such file", where=path)
    if not Path(path).is_file():
        what = "is not a file, and sentence pairs are read more than once"
        raise InputError(what, where=path, hint="save them to a file first")
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


def _steps(shape: Shape, num_bytes: float, asked: TrainConfig) -> int:
    """As many as fit into the budget, but no more than some epochs."""
    tokens = TranslationConfig().batch_tokens
    seconds = SECONDS if asked.budget is None else parse_duration(asked.budget)
    per_epoch = max(1.0, num_bytes / 2 / _BYTES_PER_TOKEN / tokens)
    per_step = _flops_per_step(_transformer(shape), tokens) / _flops_per_second(asked)
    return max(100, round(min(_EPOCHS * per_epoch, seconds / per_step)))


def _flops_per_step(model: EncoderDecoderConfig | RecurrentConfig, tokens: int) -> float:
    work = Workload(seq=SENTENCE, batch_size=max(1, tokens // SENTENCE))
    return account(model, work).flops


def _flops_per_second(config: TrainConfig) -> float:
    return peak_flops(config) * _UTILISATION[dtype_of(config.machine)]


def describe_for_pairs(config: TrainConfig) -> str:
    """Describe the settings that decide what is learned.

    Not before it is known that the files can be used: they are read to the end.
    """
    for files in filter(None, (config.pairs, config.validation)):
        read_pairs(files, config.translation.fields, config.data.errors)
    model, tokens = config.translator, config.translation.batch_tokens
    seconds = config.steps * _flops_per_step(model, tokens) / _flops_per_second(config)
    return ", ".join(
        [
            f"for {format_size(sum(map(_size, config.pairs)))} of sentence pairs and "
            f"{format_peak(config)}: {config.architecture}",
            _vocabulary(model, config.translation.joint),
            _sizes(model),
            f"dropout {model.dropout:g}",
            f"label smoothing {config.label_smoothing:g}",
            f"about {tokens:,} target tokens per step",
            format_steps(config, seconds),
            *format_optimizer(config.optimizer),
        ]
    )


def _vocabulary(model: EncoderDecoderConfig | RecurrentConfig, is_joint: bool) -> str:
    if is_joint:
        return f"vocabulary {model.target_vocab_size:,}"
    return f"vocabularies {model.source_vocab_size:,} and {model.target_vocab_size:,}"


def _sizes(model: EncoderDecoderConfig | RecurrentConfig) -> str:
    if isinstance(model, RecurrentConfig):
        return f"embeddings of {model.d_model}, GRUs of {model.d_hidden}"
    layers = f"{model.num_encoder_layers} + {model.num_decoder_layers} layers"
    return f"{layers} of {model.d_model} with {model.num_heads} heads"
