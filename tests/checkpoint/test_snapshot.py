"""What is taken of a training and put back into another gives the same training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from trafo.checkpoint.snapshot import Snapshot, restore, restore_weights, take, take_weights
from trafo.errors import FormatError
from trafo.models import TransformerLM
from trafo.optim import SGD, cross_entropy
from trafo.optim.config import OptimizerConfig, build_optimizers

KINDS = {
    "adamw": ("adamw", {}),
    "muon and adamw": ("muon", {}),
    "sgd": ("sgd", {}),
    "tied head": ("muon", {"tied_head": True}),
    "dropout": ("adamw", {"dropout": 0.3}),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Where cores are busy, two threads wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(name: str, seed: int = 0, **switches: Any) -> tuple[TransformerLM, list[Optimizer]]:
    torch.manual_seed(seed)
    model = TransformerLM(19, 8, 16, 1, 2, **switches)
    return model, build_optimizers(model, OptimizerConfig(name=name, lr=0.01))  # type: ignore[arg-type]


def train(model: TransformerLM, optimizers: list[Optimizer], steps: range) -> list[float]:
    losses = []
    for step in steps:
        ids = torch.randint(19, (2, 9), generator=torch.Generator().manual_seed(step))
        loss = cross_entropy(model(ids[:, :-1]), ids[:, 1:])
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_one_that_was_put_back_goes_on_as_the_one_taken(kind: tuple[str, dict[str, Any]]) -> None:
    name, switches = kind
    model, optimizers = make(name, **switches)
    train(model, optimizers, range(3))
    taken = copy.deepcopy(take(model, optimizers))
    expected = train(model, optimizers, range(3, 6))
    other, others = make(name, seed=1, **switches)
    train(other, others, range(9, 11))  # of its own past nothing may stay
    restore(taken, other, others)
    assert train(other, others, range(3, 6)) == expected
    ours, theirs = model.state_dict(), other.state_dict()
    assert all(ours[key].equal(theirs[key]) for key in ours)


def test_names_say_what_belongs_to_what() -> None:
    model, optimizers = make("muon")
    train(model, optimizers, range(2))
    taken = take(model, optimizers)
    assert taken.weights.keys() == model.state_dict().keys()
    assert {"lm_head.weight/m", "lm_head.weight/v", "layers.0.attn.q_proj.weight/b"} <= (
        taken.moments.keys()
    )
    assert taken.numbers["lm_head.weight/t"] == 2
    assert "layers.0.attn.q_proj.weight/t" not in taken.numbers


def test_a_tied_tensor_is_there_once() -> None:
    untied, _ = make("adamw")
    tied, _ = make("adamw", tied_head=True)
    assert len(take_weights(tied)) == len(take_weights(untied)) - 1
    assert tied.head_weight is tied.token_embeddings.weight


def test_an_untrained_one_has_no_state() -> None:
    model, optimizers = make("adamw")
    taken = take(model, optimizers)
    assert taken.moments.keys() == {"rng/torch"}
    train(model, optimizers, range(2))
    restore(taken, model, optimizers)
    assert not any(optimizer.state for optimizer in optimizers)


def snapshot() -> Snapshot:
    model, optimizers = make("adamw")
    train(model, optimizers, range(1))
    return copy.deepcopy(take(model, optimizers))


def spoil(key: str, value: Tensor | None, part: str = "weights") -> Snapshot:
    taken = snapshot()
    tensors = getattr(taken, part)
    if value is None:
        del tensors[key]
    else:
        tensors[key] = value
    return taken


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("lm_head.weight", None), r"lm_head\.weight is missing"),
        (("lm_head.bias", torch.zeros(1)), r"lm_head\.bias is unknown here"),
        (("lm_head.weight", torch.zeros(2, 3)), r"lm_head\.weight is \(2, 3\), not \(19, 16\)"),
        (("lm_head.bias/m", torch.zeros(1), "moments"), r"a state for lm_head\.bias"),
        (("lm_head.weight/m", torch.zeros(2, 3), "moments"), r"lm_head\.weight/m is \(2, 3\)"),
        (("rng/torch", None, "moments"), "rng/torch"),
        (("rng/torch", torch.zeros(3), "moments"), "rng/torch"),
        (("rng/torch", torch.zeros(3, dtype=torch.uint8), "moments"), "rng/torch"),
    ],
)
def test_what_does_not_fit_is_refused(change: tuple[Any, ...], complaint: str) -> None:
    model, optimizers = make("adamw")
    with pytest.raises(FormatError, match=complaint):
        restore(spoil(*change), model, optimizers)


def test_a_model_that_does_not_fit_is_left_as_it_was() -> None:
    weights = snapshot().weights
    del weights["lm_head.weight"]
    other, _ = make("adamw", seed=3)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(FormatError):
        restore_weights(weights, other)
    assert all(before[key].equal(value) for key, value in other.state_dict().items())


def test_an_optimizer_of_a_part_keeps_to_its_part() -> None:
    model, _ = make("sgd")
    part: list[Optimizer] = [SGD([model.lm_head.weight], lr=0.1)]
    train(model, part, range(2))
    taken = copy.deepcopy(take(model, part))
    assert all(name.startswith("lm_head") for name in taken.numbers)
    restore(taken, model, part)
