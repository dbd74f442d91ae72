"""Atomic writes and locks: files and folders that are complete or absent, and one writer's.

New content goes to a hidden temporary file, is forced to disk and renamed over the old one, which
is one atomic operation: a process that is killed or runs out of disk before it leaves the old
content as it was. Errors of the system become a `StorageError` that says what to do.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from filelock import lock_descriptor

from trafo.errors import StorageError, TrafoError

_HINTS = {
    errno.ENOSPC: "free some space and run again, nothing was lost",
    errno.EDQUOT: "free some of your quota and run again, nothing was lost",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) and run again, nothing was lost",
    errno.EACCES: "check the permissions or choose another place",
    errno.EPERM: "check the permissions or choose another place",
    errno.EROFS: "choose a place that can be written to",
    errno.ENOENT: "check the path; the folder must exist",
    errno.ENOTDIR: "check the path; a part of it is a file, not a folder",
    errno.EISDIR: "give the name of a file, not of a folder",
    errno.EIO: "the disk may be failing, check the system log",
}

ABANDONED = 86_400.0
"""seconds after which unfinished files count as abandoned"""

LOCK = ".lock"
"""the file in a folder by which `lock_folder` keeps it for one process"""

_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # some network file systems
_SECONDS_TO_LOCK = 1.0  # after which a living writer holds the lock of its file
_LONGEST_NAME = 40
_TOKEN_BYTES = 6
_LEFTOVER = re.compile(r"\..+\.([0-9a-f]{12}\.tmp|partial(\.documents|\.json)?)")

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of renameat2(2)
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextmanager
def storage_errors(
    path: str | Path, doing: str = "writing", *, temporary: Path | None = None
) -> Iterator[None]:
    """Turn errors of the system about `path` into a `StorageError`, and pass on all others.

    Errors about `temporary`, or about anything inside the two, count as well.
    """
    ours = [Path(path)] if temporary is None else [Path(path), temporary]
    try:
        yield
    except OSError as error:
        if isinstance(error, TrafoError | BrokenPipeError) or not _concerns(error, ours):
            raise
        what = (error.strerror or str(error)).lower()
        hint = _HINTS.get(error.errno) if error.errno is not None else None
        raise StorageError(f"{what} while {doing}", where=str(path), hint=hint) from error


@overload
def atomic_write(
    path: str | Path, mode: Literal["wb"] = "wb"
) -> AbstractContextManager[BinaryIO]: ...


@overload
def atomic_write(path: str | Path, mode: Literal["w"]) -> AbstractContextManager[TextIO]: ...


@contextmanager
def atomic_write(path: str | Path, mode: Literal["wb", "w"] = "wb") -> Iterator[Any]:
    """Open `path` for writing, so that it changes only when the block ends without an error.

    Text is UTF-8 with `\n` at the ends of lines. A symbolic link keeps pointing where it did.
    """
    target = Path(path).resolve()
    temporary = _hidden_neighbour(target)
    with storage_errors(path, temporary=temporary):
        if target.is_dir():  # found out now, not after an hour of writing
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _remove_dead(target)
        try:
            encoding, newline = ("utf-8", "\n") if mode == "w" else (None, None)
            with temporary.open(mode.replace("w", "x"), encoding=encoding, newline=newline) as file:
                _try_lock(file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync(target.parent)


@contextmanager
def atomic_folder(path: str | Path, *, marker: str, replace: bool = True) -> Iterator[Path]:
    """Yield an empty folder to fill, which becomes `path` when the block ends without an error.

    `marker` names a file the block must write. A folder that is already at `path` is replaced as
    a whole, but only if it is empty or holds that file: a mistyped path must not destroy a user's
    documents. Without `replace` it must be empty, even if two processes write at once.
    """
    target = Path(path).resolve()
    temporary = _hidden_neighbour(target)
    with storage_errors(path, temporary=temporary):
        _refuse_foreign_folder(target, marker)
        _remove_dead(target)
        temporary.mkdir()
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            _try_lock(descriptor)
            yield temporary
            if not (temporary / marker).exists():
                raise AssertionError(f"the folder for {path} was filled without {marker}")
            for inside in (*temporary.rglob("*"), temporary):
                sync(inside)
            if not replace or not target.exists():
                temporary.rename(target)  # refused if there is a folder that is not empty
            else:
                exchange(temporary, target)
            sync(target.parent)
        finally:
            os.close(descriptor)
            shutil.rmtree(temporary, ignore_errors=True)


def _refuse_foreign_folder(target: Path, marker: str) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise StorageError("is a file, expected a folder", where=str(target))
    if any(target.iterdir()) and not (target / marker).exists():
        raise StorageError(
            f"holds other files (no {marker}), refusing to replace it",
            where=str(target),
            hint="give a new or empty folder",
        )


def exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step, so that a whole one is in place at every instant.

    Linux has renameat2(2) for it, the standard library does not. Elsewhere there are two renames,
    with a gap of microseconds.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        paths = os.fsencode(one), os.fsencode(other)
        if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _UNSUPPORTED:
            raise OSError(code, os.strerror(code), str(other))
    exchange_by_renaming(one, other)


def exchange_by_renaming(one: Path, other: Path) -> None:
    """Swap two folders by renaming, undone if the second rename fails."""
    aside = one.with_name(f"{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


def remove_leftovers(path: str | Path) -> None:
    """Delete temporary files of killed writers of `path`. No other process may be writing it."""
    target = Path(path).resolve()
    if len(target.name) <= _LONGEST_NAME:  # else it may be another file's
        for leftover in _leftovers(target):
            leftover.unlink(missing_ok=True)


def _leftovers(target: Path) -> Iterator[Path]:
    token = "[0-9a-f]" * 2 * _TOKEN_BYTES
    return target.parent.glob(f".{glob.escape(target.name[:_LONGEST_NAME])}.{token}.tmp")


def _remove_dead(target: Path) -> None:
    """Delete what killed writers of `target` have left: a living one holds a lock."""
    for leftover in _leftovers(target):
        with suppress(OSError):
            descriptor = os.open(leftover, os.O_RDONLY)
            try:
                is_new = time.time() - os.fstat(descriptor).st_mtime < _SECONDS_TO_LOCK
                if not is_new and _try_lock(descriptor):
                    remove(leftover)
            finally:
                os.close(descriptor)


def is_leftover(path: Path) -> bool:
    """Whether the name is that of an unfinished file or folder."""
    return _LEFTOVER.fullmatch(path.name) is not None


def remove_leftovers_in(folder: Path, *, untouched_for: float = 0.0) -> None:
    """Delete the temporary files of killed writers in a folder.

    Where others may be writing now, only those unchanged for `untouched_for` seconds.
    """
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        with suppress(OSError):  # another process was faster
            if is_leftover(path) and time.time() - path.lstat().st_mtime >= untouched_for:
                remove(path)


def remove(path: Path) -> None:
    """Delete a file, a folder with its content, or a link but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Delete a folder as a whole: a kill leaves it complete, or a leftover."""
    with storage_errors(folder, "deleting"):
        leftover = folder.rename(_hidden_neighbour(folder))
        shutil.rmtree(leftover, ignore_errors=True)


def _hidden_neighbour(path: Path) -> Path:
    # The name is cut because a file system takes 255 bytes; the token keeps writers apart.
    token = secrets.token_hex(_TOKEN_BYTES)
    return path.with_name(f".{path.name[:_LONGEST_NAME]}.{token}.tmp")


def _concerns(error: OSError, ours: list[Path]) -> bool:
    """Whether the error is about one of our paths, rather than another file used in the block.

    Errors of writing name no file; errors of opening name the one that could not be opened.
    """
    if error.filename is None:
        return True
    named = Path(os.fsdecode(error.filename))
    return any(named == path or named in path.parents or path in named.parents for path in ours)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync folders, and say so with EINVAL.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def lock_file(file: IO[Any], path: Path) -> None:
    """Lock an open file until it is closed or this process ends.

    If another process holds the lock, raise an error about `path`.
    """
    try:
        is_locked = lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
        is_locked = True
    if not is_locked:
        raise StorageError(
            "is being written by another process",
            where=str(path),
            hint="wait until it ends, or choose another place",
        )


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which must exist."""
    path = folder / LOCK
    with storage_errors(path):
        file = path.open("ab")
    with file:
        lock_file(file, folder)
        yield


def _try_lock(descriptor: int) -> bool:
    """Lock it until it is closed, and return whether that was possible: not on every system."""
    with suppress(OSError):
        return lock_descriptor(descriptor, blocking=False)
    return False
