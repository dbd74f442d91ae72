"""One file on disk -> chunks of its bytes, decompressed.

In: a path; `.gz` (RFC 1952) and `.zst` (RFC 8878) are decompressed, anything else is taken as it
is. Out: chunks in order, each with how far the file on disk has been read, so that progress can
be shown in a unit whose total is known. A damaged or truncated archive is an error, never a
silently shorter text.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import zstandard

from trafo.errors import InputError

_ZSTD_READ = 16 << 10  # small, because a few bytes of zstd can stand for 128 kB each
_ZSTD_MAX_WINDOW = 1 << 31  # what `zstd --long=31` asks for


class Chunk(NamedTuple):
    data: bytes
    disk_bytes: int  # how much of the file has been read after this chunk


def read_chunks(path: Path, chunk_size: int, start_offset: int = 0) -> Iterator[Chunk]:
    """The decompressed bytes from start_offset to the end, in chunks of about chunk_size."""
    try:
        # Unbuffered: every read is one large copy straight from the page cache.
        with path.open("rb", buffering=0) as file:
            if path.suffix.lower() == ".gz":
                yield from _skip(_gzip_chunks(path, file, chunk_size), start_offset)
            elif path.suffix.lower() == ".zst":
                yield from _skip(_zstd_chunks(path, file, chunk_size), start_offset)
            else:
                yield from _plain_chunks(file, chunk_size, start_offset)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be read: {reason}", where=str(path)) from error


def is_seekable_text(path: Path) -> bool:
    """Whether `read_stretch` gives the text of a file: it is not compressed, and no pipe."""
    return path.suffix.lower() not in (".gz", ".zst") and path.is_file()


def read_stretch(path: Path, offset: int, size: int) -> bytes:
    """So many bytes of a file from an offset, just as they are on disk."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be read: {reason}", where=str(path)) from error
    if len(data) < size:
        raise InputError(
            f"ends at {offset + len(data):,} bytes, though it had {offset + size:,}",
            where=str(path),
            hint="it was changed while being read; run again",
        )
    return data


def _plain_chunks(file: IO[bytes], chunk_size: int, start_offset: int) -> Iterator[Chunk]:
    position = start_offset
    if start_offset:  # a pipe cannot seek and need not
        file.seek(start_offset)
    while data := file.read(chunk_size):
        position += len(data)
        yield Chunk(data, position)


def _gzip_chunks(path: Path, file: IO[bytes], chunk_size: int) -> Iterator[Chunk]:
    with gzip.GzipFile(fileobj=file) as archive:
        while True:
            try:
                data = archive.read(chunk_size)
            except EOFError as error:
                raise _truncated(path) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"is damaged or not gzip: {error}", where=str(path)) from error
            if not data:
                return
            yield Chunk(data, file.tell())


def _zstd_chunks(path: Path, file: IO[bytes], chunk_size: int) -> Iterator[Chunk]:
    """Join small decompressed pieces into chunks."""
    pieces: list[bytes] = []
    size = 0
    for piece in _zstd_pieces(path, file):
        pieces.append(piece)
        size += len(piece)
        if size >= chunk_size:
            yield Chunk(b"".join(pieces), file.tell())
            pieces, size = [], 0
    if size:
        yield Chunk(b"".join(pieces), file.tell())


def _zstd_pieces(path: Path, file: IO[bytes]) -> Iterator[bytes]:
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


def _skip(chunks: Iterator[Chunk], num_bytes: int) -> Iterator[Chunk]:
    """Drop the first bytes: a compressed stream can only be entered at its beginning."""
    for data, disk_bytes in chunks:
        if num_bytes < len(data):
            yield Chunk(data[num_bytes:] if num_bytes else data, disk_bytes)
        num_bytes = max(0, num_bytes - len(data))


def _truncated(path: Path) -> InputError:
    return InputError(
        "the compressed file ends too early",
        where=str(path),
        hint="it was cut off, perhaps while being copied; fetch it again",
    )
