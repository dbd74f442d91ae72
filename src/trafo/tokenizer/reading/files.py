"""One file -> its bytes, decompressed.

In: a path, local or remote; `.gz` (RFC 1952) and `.zst` (RFC 8878) are decompressed, anything else
is taken as it is. Out: bytes in order, each time with how far the file on disk has been read, for
progress. A damaged or truncated archive is an error, never a silently shorter text.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import zstandard

from trafo.errors import InputError
from trafo.runtime.remote import RemotePath, remote_errors

_ZSTD_READ = 16 << 10  # small, because a few bytes of zstd can become 128 kB
_ZSTD_MAX_WINDOW = 1 << 31  # what `zstd --long=31` asks for


AnyPath = Path | RemotePath
Reads = Iterator[tuple[bytes, int]]  # bytes, and how much of the file has been read after them


def read_file(path: AnyPath, read_size: int, start: int = 0) -> Reads:
    """The decompressed bytes from the offset `start` to the end, about `read_size` at a time."""
    with _reading(path), _open(path) as file:
        if is_compressed(path):
            read = _read_gzip if path.suffix.lower() == ".gz" else _read_zstd
            yield from _skip(read(path, file, read_size), start)
        else:
            yield from _read_plain(file, read_size, start)


def read_undecoded(path: AnyPath, read_size: int) -> Iterator[bytes]:
    """The bytes as they are on disk."""
    with _reading(path), _open(path) as file:
        for data, _ in _read_plain(file, read_size, 0):
            yield data


def is_compressed(path: AnyPath) -> bool:
    """Whether the name says that the file must be decompressed."""
    return path.suffix.lower() in (".gz", ".zst")


def read_range(path: AnyPath, offset: int, size: int) -> bytes:
    """`size` bytes of a file from an offset, as they are on disk."""
    with _reading(path):
        if isinstance(path, RemotePath):
            data = path.read_range(offset, size)
        else:
            with _open(path) as file:
                file.seek(offset)
                data = file.read(size)
    if len(data) < size:
        raise InputError(
            f"ends at {offset + len(data):,} bytes, though it had {offset + size:,}",
            where=str(path),
            hint="it was changed while being read; run again",
        )
    return data


def _open(path: AnyPath) -> IO[bytes]:
    if isinstance(path, RemotePath):
        return path.open()
    return path.open("rb", buffering=0)  # large reads need no buffer


def _reading(path: AnyPath) -> AbstractContextManager[None]:
    return remote_errors(path) if isinstance(path, RemotePath) else _reading_here(path)


@contextmanager
def _reading_here(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be read: {reason}", where=str(path)) from error


def _read_plain(file: IO[bytes], read_size: int, start: int) -> Reads:
    position = start
    file.seek(start)
    while data := file.read(read_size):
        position += len(data)
        yield data, position


def _read_gzip(path: AnyPath, file: IO[bytes], read_size: int) -> Reads:
    with gzip.GzipFile(fileobj=file) as archive:
        while True:
            try:
                data = archive.read(read_size)
            except EOFError as error:
                raise _truncated(path) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"is damaged or not gzip: {error}", where=str(path)) from error
            if not data:
                return
            yield data, file.tell()


def _read_zstd(path: AnyPath, file: IO[bytes], read_size: int) -> Reads:
    """Join what is decompressed, a little at a time, into larger reads."""
    decompressed: list[bytes] = []
    size = 0
    for data in _decompress_zstd(path, file):
        decompressed.append(data)
        size += len(data)
        if size >= read_size:
            yield b"".join(decompressed), file.tell()
            decompressed, size = [], 0
    if size:
        yield b"".join(decompressed), file.tell()


def _decompress_zstd(path: AnyPath, file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame, because only a frame's own object knows whether it is complete."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    frame = None
    while compressed := file.read(_ZSTD_READ):
        while compressed:
            frame = frame or decompressor.decompressobj()
            try:
                yield frame.decompress(compressed)
            except zstandard.ZstdError as error:
                raise InputError(f"is damaged or not zstd: {error}", where=str(path)) from error
            compressed = b""
            if frame.eof:
                compressed, frame = frame.unused_data, None
    if frame is not None:
        raise _truncated(path)


def _skip(reads: Reads, num_bytes: int) -> Reads:
    """Drop the first bytes: a compressed stream can only be read from its beginning."""
    for data, disk_bytes in reads:
        if num_bytes < len(data):
            yield data[num_bytes:], disk_bytes
        num_bytes = max(0, num_bytes - len(data))


def _truncated(path: AnyPath) -> InputError:
    return InputError(
        "the compressed file ends too early",
        where=str(path),
        hint="it was cut off, perhaps while being copied; copy it again",
    )
