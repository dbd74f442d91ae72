"""A text, sentence pairs, and configs small enough for a run of a second."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trafo.data.prepare import DataConfig
from trafo.data.prepare_pairs import TranslationConfig
from trafo.models import EncoderDecoderConfig, RecurrentConfig, TransformerLMConfig
from trafo.optim.config import OptimizerConfig
from trafo.training.config import CheckpointConfig, MachineConfig, TrainConfig, WatchConfig

MakeConfig = Callable[..., TrainConfig]

# On one thread: where cores are busy, two wait for each other most of the time.
_SETTINGS: dict[str, Any] = {
    "steps": 12,
    "optimizer": OptimizerConfig(lr=3e-3),
    "watch": WatchConfig(log_every=1, evaluate_every=4, sample_every=0, tensorboard=False),
    "checkpoint": CheckpointConfig(every=3),
    "machine": MachineConfig(threads=1, peak_flops=1e11),
}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make_config(text: Path, cache: Path, tmp_path: Path) -> MakeConfig:
    """A tiny config; keywords replace parts of it, `model__dropout=0.1` inside a branch."""

    def make(out: str = "run", **changes: Any) -> TrainConfig:
        config = TrainConfig(
            text=(str(text),),
            out=tmp_path / out,
            batch_size=4,
            model=TransformerLMConfig(
                vocab_size=300, context_length=16, d_model=16, num_layers=2, num_heads=2
            ),
            data=DataConfig(cache=cache),
            **_SETTINGS,
        )
        return changed(config, changes)

    return make


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A language of numbers, and its translation: the words, in reverse order."""
    chance = random.Random(0)
    rows = [chance.choices(list(WORDS), k=chance.randint(1, 6)) for _ in range(80)]
    folder = tmp_path_factory.mktemp("pairs")
    source, target = folder / "numbers.en", folder / "numbers.de"
    source.write_text("".join(" ".join(row) + "\n" for row in rows))
    target.write_text("".join(" ".join(WORDS[word] for word in row[::-1]) + "\n" for row in rows))
    return str(source), str(target)


WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}


@pytest.fixture
def make_pairs_config(pairs: tuple[str, str], cache: Path, tmp_path: Path) -> MakeConfig:
    """The same for sentence pairs."""

    def make(out: str = "run", **changes: Any) -> TrainConfig:
        config = TrainConfig(
            pairs=pairs,
            out=tmp_path / out,
            architecture="encoder-decoder",
            label_smoothing=0.1,
            encoder_decoder=EncoderDecoderConfig(
                source_vocab_size=280,
                target_vocab_size=280,
                d_model=16,
                num_encoder_layers=1,
                num_decoder_layers=2,
                num_heads=2,
                d_ff=32,
                norm_placement="pre",
                shared_embeddings="all",
            ),
            recurrent=RecurrentConfig(
                source_vocab_size=280, target_vocab_size=280, d_model=8, d_hidden=12
            ),
            translation=TranslationConfig(batch_tokens=100),
            data=DataConfig(cache=cache),
            **_SETTINGS,
        )
        return changed(config, changes)

    return make


def changed(config: TrainConfig, changes: dict[str, Any]) -> TrainConfig:
    """With `model__dropout=0.1` a change inside a branch."""
    by_branch: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        branch, _, name = key.rpartition("__")
        by_branch.setdefault(branch, {})[name] = value
    whole = by_branch.pop("", {})
    for branch, values in by_branch.items():
        whole[branch] = dataclasses.replace(getattr(config, branch), **values)
    return dataclasses.replace(config, **whole)
