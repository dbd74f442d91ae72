"""A model and its optimizers <-> named tensors and numbers, in one piece even if sharded.

Everything is named after the parameter it belongs to. Under FSDP a parameter is a `DTensor` of
which each rank holds a part: `take` puts the parts together (all ranks must call it), `restore`
splits them again. So one rank can read what two ranks have written, and the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from trafo.errors import FormatError
from trafo.optim import sharded

GENERATOR = "rng/torch"
"""where the moments hold the state of torch's random number generator"""


@dataclass
class Snapshot:
    """Weights and optimizer state: all that is needed to resume."""

    weights: dict[str, Tensor]
    """the model's state dict; a tensor that two names share is there once"""
    moments: dict[str, Tensor]
    """`<parameter>/<key>` of each tensor an optimizer keeps, and the random generator's state"""
    numbers: dict[str, Any] = field(default_factory=dict)
    """`<parameter>/<key>` of each number an optimizer keeps, such as AdamW's t"""


def take(model: Module, optimizers: Iterable[Optimizer]) -> Snapshot:
    """All on the CPU. They may be the live tensors: write them before training continues."""
    snapshot = Snapshot(take_weights(model), {GENERATOR: torch.get_rng_state()})
    for name, state in _states_by_name(model, optimizers):
        for key, value in state.items():
            if isinstance(value, Tensor):
                snapshot.moments[f"{name}/{key}"] = _whole(value)
            else:
                snapshot.numbers[f"{name}/{key}"] = value
    return snapshot


@torch.no_grad()
def restore(snapshot: Snapshot, model: Module, optimizers: Iterable[Optimizer]) -> None:
    """Restore weights, optimizer state and random generator."""
    restore_weights(snapshot.weights, model)
    moments = dict(snapshot.moments)
    _restore_generator(moments.pop(GENERATOR, torch.empty(0)))
    owners = _optimizers_by_name(model, optimizers)
    parameters = dict(model.named_parameters())
    for optimizer in {id(owner): owner for owner in owners.values()}.values():
        optimizer.state.clear()
    for place, value in (moments | snapshot.numbers).items():
        name, _, key = place.rpartition("/")
        if name not in owners:
            raise FormatError(f"the checkpoint has a state for {name}, the optimizer has not")
        state = owners[name].state[parameters[name]]
        if isinstance(value, Tensor):
            if value.shape not in ((), parameters[name].shape):
                raise FormatError(f"{place} is {tuple(value.shape)}, which does not fit {name}")
            value = _split(value.to(parameters[name].device), parameters[name])
        state[key] = value


def _restore_generator(state: Tensor) -> None:
    try:
        torch.set_rng_state(state)
    except (TypeError, RuntimeError):
        raise FormatError(f"{GENERATOR} is not a state of torch's random generator") from None


@torch.no_grad()
def restore_weights(weights: dict[str, Tensor], model: Module) -> None:
    """Fill the model's own tensors; every one must be there in its shape."""
    check_weights(weights, model)
    for name, tensor in _own_tensors(model).items():
        tensor.copy_(_split(weights[name].to(tensor.device), tensor))


def check_weights(weights: dict[str, Tensor], model: Module) -> None:
    """Refuse weights that do not fit; a model on the `meta` device is enough to find out."""
    if problem := _difference(weights, _own_tensors(model)):
        raise FormatError(
            f"does not fit this model: {problem}",
            hint="build it from the config that the checkpoint was made with",
        )


def take_weights(model: Module) -> dict[str, Tensor]:
    """The weights alone; all ranks must call it."""
    return {name: _whole(tensor) for name, tensor in _own_tensors(model).items()}


def _own_tensors(model: Module) -> dict[str, Tensor]:
    """The state dict with each tensor once: a tied one goes by its first name."""
    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        once.setdefault(id(tensor), (name, tensor))
    return dict(once.values())


def _difference(theirs: dict[str, Tensor], own: dict[str, Tensor]) -> str | None:
    if missing := sorted(own.keys() - theirs.keys()):
        return f"{missing[0]} is missing"
    if unknown := sorted(theirs.keys() - own.keys()):
        return f"{unknown[0]} is unknown here"
    for name, tensor in own.items():
        if tensor.shape != theirs[name].shape:
            return f"{name} is {tuple(theirs[name].shape)}, not {tuple(tensor.shape)}"
    return None


def _states_by_name(
    model: Module, optimizers: Iterable[Optimizer]
) -> list[tuple[str, dict[str, Any]]]:
    owners = _optimizers_by_name(model, optimizers)
    return [
        (name, owners[name].state[parameter])
        for name, parameter in model.named_parameters()
        if name in owners and parameter in owners[name].state
    ]


def _optimizers_by_name(model: Module, optimizers: Iterable[Optimizer]) -> dict[str, Optimizer]:
    owner = {
        id(parameter): optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    owners = {
        name: owner[id(parameter)]
        for name, parameter in model.named_parameters()
        if id(parameter) in owner
    }
    if len(owners) < len(owner):
        raise FormatError("the optimizer has parameters that are not the model's")
    return owners


def _whole(tensor: Tensor) -> Tensor:
    return sharded.whole(tensor.detach()).cpu().contiguous()


def _split(whole: Tensor, like: Tensor) -> Tensor:
    """This rank's part, where `like` is sharded and the value belongs to all of it."""
    if not sharded.is_sharded(like) or whole.shape != like.shape:
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements)
