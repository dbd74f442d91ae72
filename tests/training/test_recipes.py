"""Every recipe in configs/ is one that `trafo train` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trafo.config import load
from trafo.training.config import TrainConfig

RECIPES = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def test_there_are_some() -> None:
    assert len(RECIPES) >= 5


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_a_recipe_can_be_loaded(path: Path) -> None:
    pairs = ("train.en", "train.de")
    settings = load(TrainConfig, path)
    flags = ["--pairs", *pairs] if settings.translates else ["some.txt"]
    config = load(TrainConfig, path, flags)
    assert (config.pairs or config.text) == (pairs if config.translates else ("some.txt",))
    assert config != TrainConfig(text=config.text, pairs=config.pairs)
    assert path.read_text().startswith("# ")  # what it is for


def test_the_low_resource_setting_is_that_of_the_course() -> None:
    (path,) = (path for path in RECIPES if "cs336" in path.name)
    config = load(TrainConfig, path, ["some.txt"])
    model = config.model
    shape = model.context_length, model.d_model, model.d_ff, model.num_layers, model.num_heads
    assert shape == (256, 512, 1344, 4, 16)
    assert model.vocab_size == 10_000
    assert config.steps * config.batch_size * config.seq == 40_960_000
