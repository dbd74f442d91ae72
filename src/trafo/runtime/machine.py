"""What this machine offers: memory in bytes, cores, and a folder for caches."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_CGROUP_LIMITS = (  # version 2, version 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def peak_memory() -> int:
    """Return the peak physical memory (resident set size) of this process so far."""
    with suppress(
        OSError, IndexError
    ):  # Linux: this counter can be reset, and knows nothing of a parent
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    import resource

    # getrusage counts in bytes on macOS and in KiB on the other systems.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak_memory() -> int:
    """Start a new peak where the system can (Linux), and return where it starts."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def available_memory() -> int:
    """Return the physical memory that programs could still take."""
    import psutil

    return int(psutil.virtual_memory().available)


def machine_memory() -> int:
    """Return the physical memory of this machine, or of what a container may use of it."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):
            limits.append(int(path.read_text()))
    return min(limits)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_folder() -> Path:
    """Return the folder for what trafo can make or fetch again, which need not exist yet.

    It is $TRAFO_CACHE, or the system's place for caches: on Linux ~/.cache/trafo.
    """
    from platformdirs import user_cache_path

    if folder := os.environ.get("TRAFO_CACHE"):
        return Path(folder)
    older = Path(os.path.expanduser("~/.cache/trafo"))  # noqa: PTH111  # works without a home
    return older if older.is_dir() else user_cache_path("trafo", appauthor=False)
