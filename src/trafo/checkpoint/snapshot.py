"""A model and its optimizers <-> named tensors and numbers, in one piece even if sharded.

Everything is named after the parameter it belongs to. Under FSDP a parameter is a `DTensor` of
which each rank holds a part: `take` puts the parts together (all ranks must call it), `restore`
splits them again. So one rank can read what two ranks have written, and the reverse.

Files are safetensors: named tensors and a JSON header, nothing that could run. `save_checkpoint`
writes a snapshot to one file, for your own training loop. Its tensors are

    model.<parameter>              the weights
    optimizer.<parameter>/<key>    what the optimizer keeps for a parameter

and everything else (the iteration, hyperparameters, numbers such as AdamW's t) is JSON in the
header. The random number generator is the caller's own: it is neither saved nor changed.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from trafo.errors import FormatError
from trafo.optim import sharded
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.json_text import parse_json

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
    """Fill the model's own tensors, each of which must be there in its shape."""
    check_weights(weights, model)
    for name, tensor in _own_tensors(model).items():
        tensor.copy_(_split(weights[name].to(tensor.device), tensor))


def check_weights(weights: dict[str, Tensor], model: Module) -> None:
    """Refuse weights that do not fit a model, which may be on the `meta` device."""
    if problem := _difference(weights, _own_tensors(model)):
        raise FormatError(
            f"does not fit this model: {problem}",
            hint="build it from the config that the checkpoint was made with",
        )


def take_weights(model: Module) -> dict[str, Tensor]:
    """Take the weights alone, on all ranks together."""
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


_SYSTEM_ERROR = re.compile(r"os error (\d+)")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file."""
    try:
        with storage_errors(path, "reading"), path.open("rb"):  # a folder is not a damaged file
            tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that it does not know
        raise FormatError(f"not safetensors, or damaged: {error}", where=str(path)) from None
    return tensors


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a file with the permissions that the umask allows."""
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        # The system's error, such as a full disk, is only in the text of the message.
        if number := _SYSTEM_ERROR.search(str(error)):
            code = int(number[1])
            raise OSError(code, os.strerror(code)) from error
        raise
    umask = os.umask(0)  # it can only be read by setting it
    os.umask(umask)
    path.chmod(0o666 & ~umask)  # safetensors makes it readable by its owner only


_FORMAT = "trafo single-file checkpoint 1"
_MODEL, _OPTIMIZER = "model.", "optimizer."

File = str | Path | IO[bytes]


def save_checkpoint(model: Module, optimizer: Optimizer, iteration: int, out: File) -> None:
    """Write model, optimizer and iteration to a path (replaced as a whole) or an open file."""
    snapshot = take(model, [optimizer])
    del snapshot.moments[GENERATOR]
    tensors = {_MODEL + name: tensor for name, tensor in snapshot.weights.items()}
    tensors |= {_OPTIMIZER + name: tensor for name, tensor in snapshot.moments.items()}
    about = {
        "iteration": iteration,
        "numbers": snapshot.numbers,
        "groups": [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ],
    }
    data = save(tensors, {"format": _FORMAT, "about": json.dumps(about)})
    if isinstance(out, str | Path):
        with atomic_write(out) as file:
            file.write(data)
    else:
        out.write(data)


def load_checkpoint(src: File, model: Module, optimizer: Optimizer) -> int:
    """Restore both from a path or an open file and return the iteration."""
    if isinstance(src, str | Path):
        where = str(src)
        with storage_errors(src, "reading"):
            data = Path(src).read_bytes()
    else:
        where, data = str(getattr(src, "name", "the file")), src.read()
    about, tensors = _parse(data, where)
    moments = _below(_OPTIMIZER, tensors) | {GENERATOR: torch.get_rng_state()}
    try:
        groups, saved_groups = optimizer.param_groups, about["groups"]
        if len(groups) != len(saved_groups):
            what = f"does not fit this optimizer: {len(saved_groups)} groups, not {len(groups)}"
            raise FormatError(what)
        restore(Snapshot(_below(_MODEL, tensors), moments, about["numbers"]), model, [optimizer])
        for group, saved in zip(groups, saved_groups, strict=True):
            group.update(_with_tuples(saved))
        return int(about["iteration"])
    except FormatError as error:
        raise FormatError(error.what, where=where, hint=error.hint) from None
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(where) from error


def _parse(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = parse_json(data[8 : 8 + length])["__metadata__"]
        if header["format"] != _FORMAT:
            raise ValueError(header["format"])
        return parse_json(header["about"]), load(data)
    except (struct.error, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _refused(where) from error


def _refused(where: str) -> FormatError:
    what = "not a checkpoint of trafo's save_checkpoint, or damaged"
    return FormatError(what, where=where, hint="use an earlier checkpoint")


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _with_tuples(group: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples, and no hyperparameter is a list."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in group.items()}
