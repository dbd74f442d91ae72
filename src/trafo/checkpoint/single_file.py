"""A model and its optimizer <-> one file, without pickle.

The file is safetensors: named tensors and a JSON header, nothing that could run. Tensors are

    model.<parameter>              as in the model's state dict
    optimizer.<index>.<name>       what the optimizer keeps for parameter <index>

and everything else (the iteration, hyperparameters, numbers such as AdamW's t, names that share
one tensor) stands as JSON in the header.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write, storage_errors

_FORMAT = "trafo checkpoint 1"

File = str | Path | IO[bytes]


def save_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int, out: File
) -> None:
    """Write model, optimizer and iteration to a path (replaced as a whole) or an open file."""
    tensors, aliases = _without_shared(
        {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    )
    state = optimizer.state_dict()
    numbers: dict[str, dict[str, Any]] = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value.contiguous()
            else:
                numbers.setdefault(str(index), {})[name] = value
    about = {
        "iteration": iteration,
        "aliases": aliases,
        "numbers": numbers,
        "groups": state["param_groups"],
    }
    data = save(tensors, {"format": _FORMAT, "about": json.dumps(about)})
    if isinstance(out, str | Path):
        with atomic_write(Path(out)) as file:
            file.write(data)
    else:
        out.write(data)


def load_checkpoint(src: File, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore both from a path or an open file; returns the iteration."""
    where = str(src) if isinstance(src, str | Path) else getattr(src, "name", "the file")
    if isinstance(src, str | Path):
        with storage_errors(Path(src), "reading"):
            data = Path(src).read_bytes()
    else:
        data = src.read()
    about, tensors = _parse(data, str(where))
    for name, other in about["aliases"].items():
        tensors[name] = tensors[other]
    prefix = "model."
    try:
        model.load_state_dict(
            {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        )
        optimizer.load_state_dict(
            {"state": _optimizer_state(about, tensors), "param_groups": _groups(about)}
        )
    except (RuntimeError, ValueError) as error:
        raise FormatError(
            f"does not fit this model or optimizer: {str(error).splitlines()[0]}",
            where=str(where),
            hint="build them from the config that the checkpoint was made with",
        ) from error
    return int(about["iteration"])


def _without_shared(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, and which names are others' (a tied head is the embedding)."""
    first_name: dict[tuple[int, tuple[int, ...]], str] = {}
    once: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors.items():
        place = tensor.data_ptr(), tuple(tensor.shape)
        if tensor.numel() and place in first_name:
            aliases[name] = first_name[place]
        else:
            first_name[place] = name
            once[name] = tensor.contiguous()
    return once, aliases


def _parse(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])["__metadata__"]
        if header["format"] != _FORMAT:
            raise ValueError(header["format"])
        return json.loads(header["about"]), load(data)
    except (struct.error, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FormatError(
            "is no checkpoint of trafo, or is damaged",
            where=where,
            hint="use the checkpoint before it",
        ) from error


def _groups(about: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameter groups; JSON knows no tuples, and no hyperparameter but `params` is a list."""
    return [
        {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
        for group in about["groups"]
    ]


def _optimizer_state(about: dict[str, Any], tensors: dict[str, Tensor]) -> dict[int, Any]:
    state: dict[int, dict[str, Any]] = {}
    for index, numbers in about["numbers"].items():
        state.setdefault(int(index), {}).update(numbers)
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "optimizer":
            index, _, key = rest.partition(".")
            state.setdefault(int(index), {})[key] = tensor
    return state
