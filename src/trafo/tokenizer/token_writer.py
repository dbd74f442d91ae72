"""Writes a token file so that a kill at any moment loses at most a few seconds of work.

Ids go to `.NAME.partial`, document ends to `.NAME.partial.documents`. Every few seconds both are
put safely on disk and `.NAME.partial.json` says how much of them is valid and where in the input
that is. A later run truncates both to that and resumes, so that the result is the same to the
byte. When all is written, the manifest takes the place of that journal, and then the three files
get their final names, the manifest last: that needs no more space, and a later run can finish it.
"""

from __future__ import annotations

import errno
import json
import os
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import lock_file, remove_leftovers, storage_errors, sync
from trafo.runtime.console import say
from trafo.runtime.manifest import read_manifest, write_manifest
from trafo.tokenizer.chunks import START, Position
from trafo.tokenizer.kernels.arrays import Int64s
from trafo.tokenizer.token_file import (
    Manifest,
    TokenFile,
    Tokens,
    documents_path,
    dtype_for,
    manifest_path,
    read_token_manifest,
    write_token_manifest,
)

SECONDS_BETWEEN_SAVES = 3.0

_BYTES_SENT_AT_ONCE = 4 << 20

_END_DTYPE = np.dtype("<u8")


@dataclass(frozen=True)
class _Journal:
    """How much of the unfinished files is valid, and where in the input that is."""

    position: Position = START
    num_bytes: int = 0  # of text
    num_tokens: int = 0
    num_documents: int = 0
    last_end: int = 0  # where the last document ends
    checksum: int = 0  # CRC-32 of the ids
    documents_checksum: int = 0


class TokenWriter:
    """Appends ids to files that a later run can finish if this one ends early."""

    def __init__(
        self, path: Path, tokenizer_hash: str, vocab_size: int, fingerprint: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._dtype = np.dtype(dtype_for(vocab_size))
        self._vocab_size = vocab_size
        self._key = [tokenizer_hash, json.loads(json.dumps(fingerprint))]
        self._partial = path.with_name(f".{path.name}.partial")
        self._partial_documents = documents_path(self._partial)
        self._journal_path = manifest_path(self._partial)
        self._background = ThreadPoolExecutor(1)
        self._saving: Future[None] | None = None
        self._next_save = 0.0
        self._num_written_back = 0  # bytes of ids that the system was asked to put on disk
        self._now = _Journal()
        self._files: list[BinaryIO] = []
        self.is_finished = False

    @property
    def position(self) -> Position:
        """Where in the input to resume."""
        return self._now.position

    def _storage_errors(self) -> AbstractContextManager[None]:
        """Errors about any of the files name the one that was asked for."""
        return storage_errors(self._path, temporary=self._path.parent)

    def __enter__(self) -> TokenWriter:
        with self._storage_errors():
            if self._path.is_dir():  # found out now, not after an hour of writing
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._has_same_source(self._partial):  # all was written; only the names are missing
                self._rename_files()
            self.is_finished = self._has_same_source(self._path) and self._is_intact()
            if not self.is_finished:
                try:
                    self._open_files()
                except BaseException:
                    self._close_files()
                    raise
        self._next_save = time.monotonic() + SECONDS_BETWEEN_SAVES
        return self

    def _has_same_source(self, path: Path) -> bool:
        """Whether a manifest says that the file was made from the same input in the same way."""
        try:
            manifest = read_token_manifest(path)
        except (InputError, FormatError, OSError):
            return False
        return [manifest.tokenizer_hash, manifest.fingerprint] == self._key

    def _is_intact(self) -> bool:
        try:
            TokenFile.open(self._path).verify()
        except FormatError as error:
            say(f"{error}: doing so")
            return False
        except OSError:
            return False
        return True

    def _open_files(self) -> None:
        """Open for appending after what is valid."""
        for path in (self._partial, self._partial_documents):
            path.touch()
            self._files.append(path.open("r+b"))
        lock_file(self._files[0], self._path)
        self._now = self._read_journal()
        if not self._now.num_tokens:  # then the journal does not describe the files to be written
            self._journal_path.unlink(missing_ok=True)
        for file, valid in zip(self._files, self._valid_sizes(self._now), strict=True):
            file.truncate(valid)
            file.seek(valid)

    def _read_journal(self) -> _Journal:
        """Read what an earlier run with the same input and tokenizer left, or begin."""
        journal = read_manifest(self._journal_path, self._key)
        with suppress(ValueError, KeyError, TypeError):
            if journal is not None:
                found = _Journal(Position(*journal.pop("position")), **journal)
                sizes = [os.fstat(file.fileno()).st_size for file in self._files]
                if all(map(int.__ge__, sizes, self._valid_sizes(found))):
                    return found
        return _Journal()

    def _valid_sizes(self, journal: _Journal) -> tuple[int, int]:
        """How many bytes of each file are valid according to a journal."""
        return (
            journal.num_tokens * self._dtype.itemsize,
            journal.num_documents * _END_DTYPE.itemsize,
        )

    def write(self, ids: Tokens, ends: Int64s, num_bytes: int, position: Position) -> None:
        """Append the ids of so many bytes of text, which ends at `position`.

        `ends` says where in the ids documents end.
        """
        ends = ends + self._now.num_tokens
        ends = ends[ends > self._now.last_end].astype(_END_DTYPE)  # no empty documents
        with self._storage_errors():
            self._files[0].write(ids.data)
            if len(ends):
                self._files[1].write(ends.data)
        self._now = _Journal(
            position,
            self._now.num_bytes + num_bytes,
            self._now.num_tokens + len(ids),
            self._now.num_documents + len(ends),
            int(ends[-1]) if len(ends) else self._now.last_end,
            zlib.crc32(ids.data, self._now.checksum),
            zlib.crc32(ends.data, self._now.documents_checksum),
        )
        self._start_writeback()
        if time.monotonic() >= self._next_save:
            self._save_in_background()

    def _start_writeback(self) -> None:
        """Start writing to disk while we encode, so that there is little to wait for at the end."""
        written = self._now.num_tokens * self._dtype.itemsize
        size = written - self._num_written_back
        if size >= _BYTES_SENT_AT_ONCE and hasattr(os, "posix_fadvise"):
            # "Not needed in memory" makes Linux start writing, without waiting for it.
            os.posix_fadvise(
                self._files[0].fileno(), self._num_written_back, size, os.POSIX_FADV_DONTNEED
            )
            self._num_written_back = written

    def _save_in_background(self) -> None:
        """Force what is written to disk while encoding continues."""
        if self._saving is not None and not self._saving.done():
            return
        self._raise_save_error()
        with self._storage_errors():
            for file in self._files:
                file.flush()
        self._saving = self._background.submit(self._save, self._now)
        self._next_save = time.monotonic() + SECONDS_BETWEEN_SAVES

    def _save(self, journal: _Journal) -> None:
        with self._storage_errors():
            for file in self._files:
                os.fsync(file.fileno())
        write_manifest(self._journal_path, self._key, **asdict(journal))

    def _raise_save_error(self) -> None:
        if self._saving is not None:
            self._saving.result()

    def finish(self) -> None:
        """Complete the files and give them their final names."""
        self._raise_save_error()
        if self._now.last_end < self._now.num_tokens:  # the last document ends where the ids do
            end = np.array([self._now.num_tokens], _END_DTYPE)
            with self._storage_errors():
                self._files[1].write(end.data)
            self._now = replace(
                self._now,
                num_documents=self._now.num_documents + 1,
                last_end=self._now.num_tokens,
                documents_checksum=zlib.crc32(end.data, self._now.documents_checksum),
            )
        with self._storage_errors():
            for file in self._files:
                file.flush()
                os.fsync(file.fileno())
        tokenizer_hash, fingerprint = self._key
        manifest = Manifest(
            tokenizer_hash=tokenizer_hash,
            vocab_size=self._vocab_size,
            dtype=self._dtype.name,
            num_tokens=self._now.num_tokens,
            num_bytes=self._now.num_bytes,
            num_documents=self._now.num_documents,
            checksum=self._now.checksum,
            documents_checksum=self._now.documents_checksum,
            fingerprint=fingerprint,
        )
        write_token_manifest(self._partial, manifest)
        with self._storage_errors():
            self._rename_files()
        self.is_finished = True

    def _rename_files(self) -> None:
        """Move the files, some of which a killed run may have moved, to their final names."""
        remove_leftovers(self._journal_path)
        manifest_path(self._path).unlink(missing_ok=True)  # of an older file
        if self._partial.exists():
            self._partial.replace(self._path)
        if self._partial_documents.exists():
            self._partial_documents.replace(documents_path(self._path))
        self._journal_path.replace(manifest_path(self._path))
        sync(self._path.parent)

    def __exit__(self, *_: object) -> None:
        self._background.shutdown()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files:
            with suppress(OSError):  # a full disk has been reported already
                file.close()
