"""How much memory this process has used, in bytes.

Linux tells it in /proc/self/status (see proc(5)); elsewhere `getrusage` knows the peak.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """The most physical memory this process has held so far (the high-water mark)."""
    peak = _status_bytes("VmHWM")
    if peak is not None:
        return peak
    # getrusage counts in bytes on macOS and in KiB on the other systems.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def address_space() -> int | None:
    """The virtual memory now mapped, touched or not: what `ulimit -v` limits. None off Linux."""
    return _status_bytes("VmSize")


def _status_bytes(field: str) -> int | None:
    try:
        status = _STATUS.read_text()
    except OSError:
        return None
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024  # the kernel's "kB" are KiB
    return None
