"""File locks: a file that belongs to one process at a time."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from trafo.errors import StorageError
from trafo.runtime.atomic import storage_errors

LOCK = ".lock"
"""the file in a folder by which `locked` keeps it for one process"""

_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # some network file systems


def lock(file: IO[Any], path: Path) -> None:
    """Lock an open file exclusively, until it is closed or this process ends.

    If another process holds the lock, raise an error about `path`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            "is being written by another process",
            where=str(path),
            hint="wait until it ends, or choose another place",
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; it must exist."""
    path = folder / LOCK
    with storage_errors(path):
        file = path.open("ab")
    with file:
        lock(file, folder)
        yield
