"""A file that belongs to one process at a time."""

import errno
import fcntl
from pathlib import Path
from typing import IO, Any

from trafo.errors import StorageError

_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # some network file systems


def lock(file: IO[Any], path: Path) -> None:
    """Keep others from locking an open file, until it is closed or this process has ended.

    If another has it already, that is an error about `path`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            "is being written by another run",
            where=str(path),
            hint="wait until that has ended, or choose another place",
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
