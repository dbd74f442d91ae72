"""Sizes chosen for a text: not our own figures again, but what any good choice has to fulfil."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.account import Workload, account
from trafo.errors import ConfigError
from trafo.train.auto import SHAPES, Text, best_choice, choose, model_of, vocabulary_for
from trafo.train.config import TrainConfig

texts = st.floats(1e3, 1e11)
work = st.floats(1e11, 1e18)


@given(texts, work)
def test_a_choice_fits_the_text_and_the_time(num_bytes, flops):
    text = Text(num_bytes)
    choice = best_choice(text, flops)
    model = model_of(choice.shape, choice.vocab)  # which checks itself
    batch = Workload(seq=model.context_length, batch_size=choice.batch_size)
    if choice.shape is not SHAPES[0]:
        assert choice.shape.parameters < 10 * text.tokens(choice.vocab)  # else it memorizes
        assert choice.steps * account(model, batch).flops <= 1.5 * flops
    assert choice.steps >= 1
    assert 256 < choice.vocab <= 32_768


@given(texts, work)
def test_more_time_never_means_a_smaller_model(num_bytes, flops):
    text = Text(num_bytes)
    less, more = best_choice(text, flops), best_choice(text, 100 * flops)
    assert more.shape.parameters >= less.shape.parameters


@given(texts, texts)
def test_more_text_never_means_a_smaller_vocabulary(one, other):
    low, high = sorted((one, other))
    assert vocabulary_for(low) <= vocabulary_for(high)


def test_what_was_chosen_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text.txt"
    path.write_text("so few words\n" * 5000)
    config = choose(TrainConfig(text=(str(path),)))
    said = capsys.readouterr().err
    assert "65.0 kB" in said
    assert f"{config.model.vocab_size:,}" in said
    assert f"{config.steps:,} steps" in said
    budgeted = choose(TrainConfig(text=(str(path),), budget="90s"))
    assert "steps for 90s" in capsys.readouterr().err
    assert budgeted.model.d_model <= config.model.d_model


def test_nothing_to_train_on():
    with pytest.raises(ConfigError, match="no text to train on"):
        choose(TrainConfig())
