"""Peak FLOP/s of the machine, kept between runs: the same command then chooses the same settings.

Otherwise a machine that is busy at one moment would count as slow, and get a smaller model. A peak
that was first measured on a busy machine is replaced as soon as a much higher one is seen. The file
is ~/.cache/trafo/machine.json (or in $TRAFO_CACHE).
"""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from trafo.errors import StorageError, require
from trafo.runtime.atomic import atomic_write
from trafo.runtime.json_text import parse_json
from trafo.runtime.machine import cache_folder
from trafo.training.config import MachineConfig, Precision
from trafo.training.distributed import is_first_process

_SIZE = 1024  # of the matrix products that are timed
_ROUNDS, _ROUNDS_AGAIN = 12, 3  # the second, if a peak is kept
_ENOUGH_SECONDS = 0.5  # for all rounds, after which there is no further one
_WORTH_IT = 1.5  # times float32's peak: from here on training in bfloat16 is clearly faster
_MUCH = 1.3  # times as high: not by chance


@dataclass(frozen=True)
class Peak:
    """Peak FLOP/s of matrix products on a device, in one process."""

    flops: float
    """per second"""
    measured: str
    """date of the measurement"""


def peak_of(device: torch.device | str = "cpu", dtype: Precision = "float32") -> Peak:
    """The peak on this device with this number of threads: kept, unless it is much higher now."""
    file, name = peak_file(), _name_of(torch.device(device), dtype)
    kept = _read(file)
    known = _known(kept, name)
    rounds = _ROUNDS if known is None else _ROUNDS_AGAIN
    peak = _peak_now(str(device), dtype, torch.get_num_threads(), rounds)
    if known is not None and peak.flops < _MUCH * known.flops:
        return known
    if is_first_process():
        with suppress(OSError, StorageError):  # then it is measured again next time
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file, "w") as new:
                json.dump(kept | {name: asdict(peak)}, new, indent=1)
    return peak


def _known(kept: dict[str, Any], name: str) -> Peak | None:
    with suppress(KeyError, TypeError, ValueError):
        known = Peak(float(kept[name]["flops"]), str(kept[name]["measured"]))
        return known if known.flops > 0 else None
    return None


def dtype_of(machine: MachineConfig) -> Precision:
    """Its precision; auto: bfloat16 where products of it are much faster than those of float32."""
    if machine.dtype != "auto":
        return machine.dtype
    device = device_of(machine)
    much_faster = peak_of(device, "bfloat16").flops > _WORTH_IT * peak_of(device).flops
    return "bfloat16" if much_faster else "float32"


@cache
def _peak_now(device: str, dtype: Precision, threads: int, rounds: int) -> Peak:
    """Measured once in a process, for each number of threads, which torch has been told."""
    return Peak(measured_peak_flops(device, dtype, rounds), date.today().isoformat())


def peak_file() -> Path:
    """The file that keeps it."""
    return cache_folder() / "machine.json"


def device_of(machine: MachineConfig, local_rank: int = 0) -> str:
    """Its device, refused if this machine has none such; None: cuda if there is a GPU, else cpu.

    Each rank of a machine takes a GPU of its own.
    """
    name = machine.device or ("cuda" if torch.cuda.is_available() else "cpu")
    own = f"cuda:{local_rank}" if name == "cuda" else name
    devices = ["cpu"]
    if torch.accelerator.is_available() and (kind := torch.accelerator.current_accelerator()):
        numbered = [f"{kind.type}:{i}" for i in range(torch.accelerator.device_count())]
        devices += [kind.type, *numbered]
    what = f"machine.device is {own if local_rank else name!r}, which this machine does not have"
    require(own in devices, what, f"choose one of {', '.join(devices)}")
    return own


def _name_of(device: torch.device, dtype: Precision) -> str:
    numbers = "" if dtype == "float32" else f", {dtype}"
    if device.type == "cuda":
        return torch.cuda.get_device_name(device) + numbers
    return f"{_processor()}, {torch.get_num_threads()} threads{numbers}"


def _processor() -> str:
    """The model of the CPU: a home folder may be shared by several machines."""
    with suppress(OSError, IndexError), open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
        return next(line for line in file if line.startswith("model name")).split(": ")[1].strip()
    return platform.processor() or platform.machine()


def _read(file: Path) -> dict[str, Any]:
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def measured_peak_flops(
    device: torch.device | str = "cpu", dtype: Precision = "float32", rounds: int = _ROUNDS
) -> float:
    """FLOP/s of the best of several square products; takes a fraction of a second."""
    a, b = torch.rand(2, _SIZE, _SIZE, device=device).to(getattr(torch, dtype)).unbind()
    c = torch.empty_like(a)
    seconds: list[float] = []
    while len(seconds) < rounds and sum(seconds) < _ENOUGH_SECONDS:
        start = perf_counter()
        torch.mm(a, b, out=c)
        float(c[0, 0])  # waits for a device that works on its own
        seconds.append(perf_counter() - start)
    return float(2 * _SIZE**3 / min(seconds))
