"""Automatic settings give way to what the user asks for, and fit it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.cli.train import parse
from trafo.config import flatten, to_tree
from trafo.errors import ConfigError
from trafo.models import TransformerLMConfig
from trafo.training.auto.resolve import AUTOMATIC, fit_heads
from trafo.training.auto.text import SHAPES, model_of
from trafo.training.config import TrainConfig


@given(st.sampled_from(SHAPES), st.integers(1, 3000), st.sampled_from([None, 1, 2, 3]))
def test_heads_divide_any_hidden_size_that_can_be_divided(shape, half, kv_heads):
    chosen = model_of(shape, 512)
    fitted = fit_heads(chosen, {"d_model": 2 * half, "num_kv_heads": kv_heads})
    can_be = any(2 * half % (size * (kv_heads or 1)) == 0 for size in range(2, 257, 2))
    if can_be and 2 * half != chosen.d_model:
        model = TransformerLMConfig(
            d_model=2 * half, num_heads=fitted.num_heads, num_kv_heads=kv_heads
        )  # which checks itself
        assert model.d_head % 2 == 0
    else:
        assert fitted == chosen


def settings(tmp_path: Path, *flags: str) -> TrainConfig:
    text = tmp_path / "text.txt"
    text.write_text("so few words\n" * 5000)
    return parse([str(text), "--machine.peak-flops", "1e9", *flags], "trafo train")[0]


def test_a_hidden_size_alone_is_enough(tmp_path: Path) -> None:
    assert settings(tmp_path, "--model.d-model", "48").model.d_model == 48
    model = settings(tmp_path, "--model.d-model", "48", "--model.num-heads", "6").model
    assert (model.d_model, model.num_heads) == (48, 6)
    with pytest.raises(ConfigError, match="d_model 48 is not divisible by num_heads 5"):
        settings(tmp_path, "--model.d-model", "48", "--model.num-heads", "5")
    with pytest.raises(ConfigError, match="d_model 49 is not divisible"):
        settings(tmp_path, "--model.d-model", "49")


def test_settings_of_a_model_that_is_not_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--gpt2 is set, but the model is transformer-lm"):
        settings(tmp_path, "--gpt2.num-layers", "2")
    gpt2 = settings(tmp_path, "--architecture", "gpt2", "--gpt2.num-layers", "2")
    assert gpt2.gpt2.num_layers == 2
    for side in ("a.en", "a.de"):
        (tmp_path / side).write_text("one two three\n" * 20)
    pairs = ["--pairs", str(tmp_path / "a.en"), str(tmp_path / "a.de")]
    with pytest.raises(ConfigError, match="--model is set, but the model is encoder-decoder"):
        parse([*pairs, "--model.d-model", "32"], "trafo train")


def test_what_is_chosen_has_no_default_in_help(tmp_path: Path) -> None:
    for side in ("a.en", "a.de"):
        (tmp_path / side).write_text("one two three\n" * 20)
    pairs = ["--pairs", str(tmp_path / "a.en"), str(tmp_path / "a.de")]
    before = flatten(to_tree(TrainConfig()))
    given = {"text", "pairs", "machine.peak_flops"}
    for config in (settings(tmp_path), parse(pairs, "trafo train")[0]):
        found = flatten(to_tree(config))
        chosen = {key for key, value in found.items() if value != before[key]}
        assert chosen - given <= AUTOMATIC
    assert before.keys() >= AUTOMATIC
