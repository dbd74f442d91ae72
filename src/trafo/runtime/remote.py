"""Remote files, named by URLs such as `s3://bucket/text.txt`, through the package fsspec.

Text is read where it is, a range at a time. Whatever must be written in several steps, locked or
mapped into memory has a local copy in the cache folder: it is finished there, then sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from trafo.errors import (
    InputError,
    MissingPackageError,
    StorageError,
    TrafoError,
    install_command,
    missing_package,
)
from trafo.runtime.atomic import atomic_write
from trafo.runtime.machine import cache_folder
from trafo.runtime.progress import progress

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOCAL = ("file", "local")
_BLOCK = 4 << 20


def parse_path(place: str | Path | RemotePath) -> Path | RemotePath:
    """Parse a URL as a remote path, and anything else, and `file://`, as one of this machine."""
    if isinstance(place, RemotePath):
        return place
    url = _URL.match(str(place))
    if url is None:
        return Path(place)
    if url[1] in _LOCAL:
        return Path(str(place)[url.end() :])
    return RemotePath(str(place).rstrip("/"))


@dataclass(frozen=True, slots=True, order=True)
class RemotePath:
    """A file or folder that an fsspec file system knows."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """The last suffix of the name."""
        return PurePosixPath(self.url).suffix

    def _system(self) -> tuple[Any, str]:
        """The file system, and what it calls the file."""
        try:
            import fsspec
        except ImportError as error:
            raise missing_package(error.name or "fsspec", "URLs need", where=self.url) from error
        system, path = fsspec.core.url_to_fs(self.url)
        return system, str(path)

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        with remote_errors(self):
            system, path = self._system()
            system.invalidate_cache()  # another process may have written since it was listed
            return bool(system.exists(path))

    def files(self) -> list[RemotePath]:
        """List the files meant: itself, all below a folder, or those that a glob matches.

        Hidden files are left out, as in folders of this machine.
        """
        with remote_errors(self):
            system, path = self._system()
            system.invalidate_cache()
            if system.isfile(path):
                return [self]
            if system.isdir(path):
                below = [p.removeprefix(path).strip("/") for p in system.find(path)]
                return sorted(self / name for name in below if not _is_hidden(name))
            found = system.glob(path, detail=True).items()
            files = [p for p, about in found if about["type"] == "file"]
            return sorted(RemotePath(system.unstrip_protocol(p)) for p in files)

    def size_and_change(self) -> tuple[int, int]:
        """Return bytes, and the time of the last change in ns, 0 where that is not known."""
        with remote_errors(self):
            system, path = self._system()
            size = int(system.info(path)["size"])
            try:
                return size, int(system.modified(path).timestamp() * 1e9)
            except NotImplementedError:
                return size, 0

    def open(self) -> IO[bytes]:
        """Open it for reading from the beginning to the end."""
        system, path = self._system()
        file: IO[bytes] = system.open(path, "rb", block_size=_BLOCK, cache_type="readahead")
        return file

    def read_range(self, offset: int, size: int) -> bytes:
        """Read at most so many bytes from an offset, in one request."""
        system, path = self._system()
        return bytes(system.cat_file(path, start=offset, end=offset + size))

    def read_bytes(self) -> bytes:
        """Read all of a small file."""
        with remote_errors(self):
            system, path = self._system()
            system.invalidate_cache()
            return bytes(system.cat_file(path))

    def fetch(self, local: Path) -> None:
        """Copy the file to this machine."""
        size, _ = self.size_and_change()
        local.parent.mkdir(parents=True, exist_ok=True)
        with (
            progress(f"fetching {self.name}", total=size, unit="MB", scale=1e6) as bar,
            remote_errors(self),
            self.open() as source,
            atomic_write(local) as file,
        ):
            while data := source.read(_BLOCK):
                file.write(data)
                bar.advance(len(data))

    def send(self, local: Path) -> None:
        """Copy a file of this machine here."""
        size = local.stat().st_size
        with (
            progress(f"sending {self.name}", total=size, unit="MB", scale=1e6) as bar,
            remote_errors(self, "written", StorageError),
        ):
            system, path = self._system()
            from fsspec.callbacks import Callback

            def advance(size: int | None, value: int, **_: object) -> None:
                bar.advance(value - bar.completed)

            system.put_file(str(local), path, callback=Callback(hooks={"bar": advance}))

    def remove(self) -> None:
        """Delete the file, if there is one."""
        if self.exists():
            with remote_errors(self, "removed", StorageError):
                system, path = self._system()
                system.rm_file(path)

    @property
    def local_copy(self) -> Path:
        """Where on this machine its copy is, if there is one."""
        key = hashlib.blake2b(self.url.encode(), digest_size=8).hexdigest()
        return cache_folder() / "remote" / key / self.name


@contextmanager
def remote_errors(
    path: RemotePath, done: str = "read", kind: type[TrafoError] = InputError
) -> Iterator[None]:
    """Turn any error of a file system into one line: every package has its own classes."""
    try:
        yield
    except TrafoError:
        raise
    except FileNotFoundError as error:
        hint = "check the spelling, and that the bucket exists"
        raise kind("no such file or folder", where=str(path), hint=hint) from error
    except ImportError as error:  # fsspec names the package that is missing
        hint = f"s3:// comes with `{install_command('s3fs')}`, gs:// with gcsfs"
        raise MissingPackageError(str(error), where=str(path), hint=hint) from error
    except Exception as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise kind(f"cannot be {done}: {what}", where=str(path)) from error


def local_copy_of(place: str | Path) -> Path:
    """Return a path of this machine with the content of `place`: itself, or a fresh copy.

    Of a folder only the files right inside are copied, and those that are no longer there are
    removed; a folder that does not exist yet is an empty one.
    """
    path = parse_path(place)
    if isinstance(path, Path):
        return path
    files = path.files()
    copy = path.local_copy
    if files == [path]:
        path.fetch(copy)
        return copy
    inside = {file.name: file for file in files if file.url == f"{path.url}/{file.name}"}
    for name, file in inside.items():
        file.fetch(copy / name)
    for old in copy.iterdir() if copy.is_dir() else []:
        if old.is_file() and old.name not in inside:
            old.unlink()
    return copy


def send_folder(folder: Path, to: str | Path, last: str) -> None:
    """Send the files right inside a folder's local copy to the URL `to`, the file `last` last.

    If `to` is a local path, the folder is not a copy, and nothing is sent.
    """
    path = parse_path(to)
    if isinstance(path, RemotePath):
        files = sorted(file for file in folder.iterdir() if file.is_file())
        for file in sorted(files, key=lambda file: file.name == last):
            (path / file.name).send(file)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
