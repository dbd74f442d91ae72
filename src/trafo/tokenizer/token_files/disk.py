"""What Python has no spelling for: asking the system to begin writing, and to keep a rename."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

_START_WRITING = 2  # SYNC_FILE_RANGE_WRITE


def _sync_file_range() -> Any:
    """Linux has it; where it is missing, all is written when a file is synced."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None) if os.name == "posix" else None
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_system = _sync_file_range()


def start_writing(descriptor: int, offset: int, size: int) -> None:
    """Have a stretch of a file go to disk now, without waiting for it. Only a hint."""
    if _system is not None:
        _system(descriptor, offset, size, _START_WRITING)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk, so that a rename outlives a power failure."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what some network file systems say about any folder
            raise
    finally:
        os.close(descriptor)
