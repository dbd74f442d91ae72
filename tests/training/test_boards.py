"""The same numbers wherever they are shown; other number types; compiled models."""

import pytest
import torch

from trafo.errors import MissingPackageError
from trafo.training import start
from trafo.training.build import build
from trafo.training.distributed import Ranks
from trafo.training.metrics import WeightsAndBiases, read_metrics


def test_tensorboard_shows_what_the_metrics_say(make_config):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = make_config(watch__tensorboard=True, steps=4)
    assert start.train(config).stopped_by is None
    events = EventAccumulator(str(config.out / "tensorboard"))
    events.Reload()
    for kind in ("train", "validation"):
        records = [r for r in read_metrics(config.out / "metrics.jsonl") if r["kind"] == kind]
        shown = [(event.step, event.value) for event in events.Scalars(f"{kind}/loss")]
        assert shown == [(r["step"], pytest.approx(r["loss"], rel=1e-6)) for r in records]


def test_weights_and_biases_is_only_there_if_it_is(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(MissingPackageError, match=r"watch\.wandb needs the package wandb"):
        WeightsAndBiases("project", {})


def test_bfloat16_products_change_little(make_config):
    exact, rough = (
        build(make_config(name, machine__dtype=name, model__d_model=32), Ranks())
        for name in ("float32", "bfloat16")
    )
    for step in range(3):
        expected, got = (one.step(step, seed=0, rate_factor=1.0) for one in (exact, rough))
        assert got.loss != expected.loss
        assert abs(got.loss - expected.loss) < 0.02
    assert all(parameter.dtype == torch.float32 for parameter in rough.model.parameters())


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(make_config):
    plain, compiled = (
        build(make_config(str(on), machine__compile=on), Ranks()) for on in (False, True)
    )
    for step in range(3):
        expected, got = (one.step(step, seed=0, rate_factor=1.0) for one in (plain, compiled))
        assert abs(got.loss - expected.loss) < 1e-4
