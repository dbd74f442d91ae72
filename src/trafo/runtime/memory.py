"""Memory that this process has used and that the machine has, in bytes; see proc(5)."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

_LIMITS = (  # of the control group: version 2, version 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Peak physical memory (resident set size) of this process so far."""
    peak = _bytes_in(_STATUS, "VmHWM")
    if peak is not None:
        return peak
    # getrusage counts in bytes on macOS and in KiB on the other systems.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak_memory() -> int:
    """Start a new peak where the system can (Linux); returns where it starts."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def available_memory() -> int | None:
    """Physical memory that programs could still take. None off Linux."""
    return _bytes_in(Path("/proc/meminfo"), "MemAvailable")


def machine_memory() -> int:
    """Physical memory of this machine, or of what a container may use of it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            limits.append(int(path.read_text()))
    return min(limits)


def _bytes_in(file: Path, field: str) -> int | None:
    try:
        status = file.read_text()
    except OSError:
        return None
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024  # the kernel's "kB" are KiB
    return None
