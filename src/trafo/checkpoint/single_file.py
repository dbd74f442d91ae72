"""A model and its optimizer <-> one file, for your own training loop; no pickle.

The file is safetensors: named tensors and a JSON header, nothing that could run. The tensors are
those of a snapshot,

    model.<parameter>              the weights
    optimizer.<parameter>/<key>    what the optimizer keeps for a parameter

and everything else (the iteration, hyperparameters, numbers such as AdamW's t) is JSON in the
header. The random number generator is the caller's own: it is neither saved nor changed.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from trafo.checkpoint.snapshot import GENERATOR, Snapshot, restore, take
from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.json_text import parse_json

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
    """Restore both from a path or an open file; returns the iteration."""
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
