"""Swap two folders in one step, so that at every instant a whole one is in place.

Linux offers `renameat2(2)` with RENAME_EXCHANGE, which the standard library does not, hence
ctypes. Elsewhere two renames do it, with a gap of microseconds between them.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(one: Path, other: Path) -> None:
    """Swap the two: each name then leads to what the other led to."""
    if not _exchange_at_once(one, other):
        exchange_by_renaming(one, other)


def exchange_by_renaming(one: Path, other: Path) -> None:
    """For systems without RENAME_EXCHANGE; undone if the second rename fails."""
    aside = one.with_name(f"{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


def _exchange_at_once(one: Path, other: Path) -> bool:
    """False where the system or the file system cannot do it."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))
