"""Rates follow their formulas at every step; every parameter has the rate and decay it should."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Parameter

from trafo.errors import ConfigError
from trafo.models import GPT2Config, TransformerLMConfig, build_model
from trafo.optim import SGD, AdamW, Muon
from trafo.optim.config import OptimizerConfig, ScheduleConfig, build_optimizers, set_rates

SHAPE = {"vocab_size": 11, "context_length": 8, "d_model": 8, "num_layers": 2, "num_heads": 2}


def cosine(t: int, steps: int, warmup: int, floor: float) -> float:
    if t <= warmup:
        return t / warmup
    share = (t - warmup) / (steps - warmup)
    return floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2


def linear(t: int, steps: int, warmup: int, decay: int) -> float:
    if t <= warmup:
        return t / warmup
    return min(1.0, (steps - t) / decay)


@pytest.mark.parametrize("steps", [1, 2, 7, 50, 101, 1000])
def test_every_factor_is_its_formula(steps: int) -> None:
    """Step 0 takes t = 1, and the end is after the last step: at rate zero nothing is learned."""
    warmup, decay = round(0.1 * steps), round(0.4 * steps)
    formulas: dict[str, Callable[[int], float]] = {
        "cosine": lambda t: cosine(t, steps + 1, warmup, 0.25),
        "linear": lambda t: linear(t, steps + 1, warmup, decay + 1),
        "inverse-square-root": lambda t: 64**-0.5 * min(t**-0.5, t * max(warmup, 1) ** -1.5),
        "constant": lambda t: 1.0,
    }
    for name, formula in formulas.items():
        schedule = ScheduleConfig(name=name, warmup=0.1, floor=0.25, decay=0.4)  # type: ignore[arg-type]
        for step in range(steps):
            expected = formula(step + 1)
            assert schedule.factor(step, steps, 64) == pytest.approx(expected, abs=1e-12), name


def test_edges() -> None:
    """First step, end of warmup, the step after it, the beginning of the fall, the last step."""
    falling = ScheduleConfig(name="linear", warmup=0.1, decay=0.5)
    at = [falling.factor(step, 99, 64) for step in (0, 8, 9, 10, 48, 49, 50, 97, 98)]
    assert at == pytest.approx([0.1, 0.9, 1, 1, 1, 0.98, 0.96, 0.04, 0.02], abs=1e-3)
    half = ScheduleConfig(name="cosine", warmup=0.1, floor=0.2)
    at = [half.factor(step, 99, 64) for step in (0, 8, 9, 54, 98)]
    assert at == pytest.approx([0.1, 0.9, 1, 0.6, 0.2 + 0.8 * math.sin(math.pi / 180) ** 2])


@pytest.mark.parametrize("name", ["cosine", "linear", "inverse-square-root", "constant"])
def test_a_single_step_learns(name: str) -> None:
    """`--steps 1` with the defaults: at half of its warm-up or decay, or at the peak."""
    factor = ScheduleConfig(name=name, floor=0.0).factor(0, 1, 1)  # type: ignore[arg-type]
    assert 0.5 <= factor <= 1


@st.composite
def schedules(draw: st.DrawFn) -> ScheduleConfig:
    warmup = draw(st.floats(0, 1))
    return ScheduleConfig(
        name=draw(st.sampled_from(["cosine", "linear", "inverse-square-root", "constant"])),
        warmup=warmup,
        floor=draw(st.floats(0, 1)),
        decay=draw(st.floats(0, 1 - warmup)),
    )


@given(schedule=schedules(), steps=st.integers(1, 300))
def test_factors_rise_then_fall_within_0_and_1(schedule: ScheduleConfig, steps: int) -> None:
    factors = [schedule.factor(step, steps, 64) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors)
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    # One step later, where there is none, the end of the decay is reached.
    if schedule.name in ("cosine", "linear"):
        end = schedule.floor if schedule.name == "cosine" else 0.0
        assert schedule.factor(steps, steps, 64) == end


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: ScheduleConfig(warmup=1.5), "schedule.warmup"),
        (lambda: ScheduleConfig(floor=-0.1), "schedule.floor"),
        (lambda: ScheduleConfig(name="linear", warmup=0.6), "schedule.warmup + schedule.decay"),
        (lambda: OptimizerConfig(lr=-1.0), "optimizer.lr"),
        (lambda: OptimizerConfig(lr=math.nan), "optimizer.lr"),
        (lambda: OptimizerConfig(weight_decay=-1.0), "optimizer.weight_decay"),
        (lambda: OptimizerConfig(max_grad_norm=0.0), "optimizer.max_grad_norm"),
        (lambda: OptimizerConfig(betas=(0.9, 1.0)), "optimizer.betas"),
        (lambda: OptimizerConfig(muon_momentum=1.0), "optimizer.muon_momentum"),
    ],
)
def test_mistakes_name_their_key(make: Callable[[], Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        make()
    assert key in str(refusal.value)


MODELS = {
    "transformer-lm": TransformerLMConfig(**SHAPE, qk_norm=True, embedding_norm=True),
    "learned positions": TransformerLMConfig(**SHAPE, positions="learned", norm="layernorm"),
    "tied": TransformerLMConfig(**SHAPE, tied_head=True),
    "gpt2": GPT2Config(**SHAPE),
}
CONFIG = {"lr": 1.0, "embedding_lr": 2.0, "head_lr": 3.0, "muon_lr": 4.0, "weight_decay": 0.5}


def kind_of(name: str, parameter: Parameter) -> str:
    """By name, as a reader would sort them."""
    if name.split(".")[0] in ("token_embeddings", "position_embeddings"):
        return "embedding"
    if name == "lm_head.weight":
        return "head"
    return "matrix" if parameter.ndim == 2 else "vector"


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("config", MODELS.values(), ids=list(MODELS))
def test_each_parameter_is_in_one_group_with_its_rate(config: Any, optimizer: str) -> None:
    model = build_model(config)
    optimizers = build_optimizers(model, OptimizerConfig(name=optimizer, **CONFIG))  # type: ignore[arg-type]
    kinds = {
        "adamw": [AdamW],
        "muon": [Muon, AdamW],
        "sgd": [SGD],
    }
    assert [type(one) for one in optimizers] == kinds[optimizer]
    seen: dict[int, tuple[type, float, float]] = {}
    for one in optimizers:
        for group in one.param_groups:
            for parameter in group["params"]:
                assert id(parameter) not in seen
                seen[id(parameter)] = type(one), group["lr"], group.get("weight_decay", 0.0)
    named = dict(model.named_parameters())
    assert seen.keys() == {id(parameter) for parameter in named.values()}
    rates = {"embedding": 2.0, "head": 3.0, "vector": 1.0, "matrix": 1.0}
    for name, parameter in named.items():
        kind = kind_of(name, parameter)
        owner, lr, decay = seen[id(parameter)]
        if optimizer == "muon" and kind == "matrix":
            assert (owner, lr, decay) == (Muon, 4.0, 0.5), name
        else:
            assert owner is not Muon, name
            assert lr == rates[kind], name
            assert decay == (0.0 if optimizer == "sgd" or kind == "vector" else 0.5), name


def test_one_rate_serves_all_unless_told() -> None:
    optimizers = build_optimizers(build_model(MODELS["transformer-lm"]), OptimizerConfig(lr=0.3))
    assert {group["lr"] for group in optimizers[0].param_groups} == {0.3}


def test_rates_are_set_from_their_tops() -> None:
    model = build_model(MODELS["gpt2"])
    optimizers = build_optimizers(model, OptimizerConfig(name="muon", **CONFIG))  # type: ignore[arg-type]
    for factor in (0.5, 0.25):
        set_rates(optimizers, factor)
        found = {group["lr"] for one in optimizers for group in one.param_groups}
        assert found == {factor * top for top in (1.0, 2.0, 4.0)}


def test_a_rate_of_zero_changes_nothing() -> None:
    model = build_model(MODELS["transformer-lm"])
    optimizers = build_optimizers(model, OptimizerConfig(name="muon", **CONFIG))  # type: ignore[arg-type]
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    model(torch.arange(6)[None]).square().mean().backward()
    set_rates(optimizers, 0.0)
    for one in optimizers:
        one.step()
    assert all(before[name].equal(parameter) for name, parameter in model.named_parameters())
