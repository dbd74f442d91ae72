"""Writes a token file so that a kill at any moment loses at most a few seconds of work.

Ids go to `.NAME.partial`, document ends to `.NAME.partial.documents`. Every few seconds both are
put safely on disk and `.NAME.partial.json` says how much of them is valid and where in the input
that is. A later run cuts both back to there and goes on, so that the result is the same to the
byte. The final names appear when all is written, the manifest last.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.tokenizer.reading import Position
from trafo.tokenizer.token_file import (
    Manifest,
    TokenFile,
    Tokens,
    documents_path,
    dtype_for,
    manifest_path,
    write_manifest,
)

SECONDS_BETWEEN_SAVES = 3.0

_END_DTYPE = np.dtype("<u8")


@dataclass(frozen=True)
class _Journal:
    """How much of the unfinished files is valid, and where in the input that is."""

    position: Position = field(default_factory=Position)
    num_tokens: int = 0
    num_documents: int = 0
    last_end: int = 0  # where the last document ends


class TokenWriter:
    """Appends ids; `with` closes the files, and leaves them for a later run if not finished."""

    def __init__(
        self, path: Path, tokenizer_hash: str, vocab_size: int, made_from: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._dtype = np.dtype(dtype_for(vocab_size))
        self._tokenizer_hash = tokenizer_hash
        self._vocab_size = vocab_size
        self._made_from = json.loads(json.dumps(made_from))
        self._partial = path.with_name(f".{path.name}.partial")
        self._partial_documents = documents_path(self._partial)
        self._journal_path = manifest_path(self._partial)
        self._saving: threading.Thread | None = None
        self._save_error: BaseException | None = None
        self._next_save = time.monotonic() + SECONDS_BETWEEN_SAVES
        self.is_finished = self._is_already_there()
        self._now = self._read_journal()
        self._files: list[BinaryIO] = []

    @property
    def position(self) -> Position:
        """Where in the input to go on."""
        return self._now.position

    def _is_already_there(self) -> bool:
        try:
            manifest = TokenFile.open(self._path, self._tokenizer_hash).manifest
        except (InputError, FormatError, OSError):
            return False
        return bool(manifest.made_from == self._made_from)

    def _read_journal(self) -> _Journal:
        """What an earlier run left, if it had the same input and tokenizer; else the beginning."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            journal = json.loads(self._journal_path.read_text())
            key = [self._tokenizer_hash, self._made_from]
            if journal.pop("key") == key and self._partial.exists():
                position = Position(**journal.pop("position"))
                found = _Journal(position, **journal)
                if self._partial.stat().st_size >= found.num_tokens * self._dtype.itemsize:
                    return found
        return _Journal()

    def __enter__(self) -> TokenWriter:
        if not self.is_finished:
            with storage_errors(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._open(self._partial, self._now.num_tokens * self._dtype.itemsize)
                self._open(self._partial_documents, self._now.num_documents * _END_DTYPE.itemsize)
        return self

    def _open(self, path: Path, valid: int) -> None:
        """Open for appending behind the valid part."""
        path.touch()
        file = path.open("r+b")
        self._files.append(file)
        file.truncate(valid)
        file.seek(valid)

    def write(self, ids: Tokens, ends: NDArray[np.int64], position: Position) -> None:
        """Append the ids of a chunk; `position` is the place in the input behind it."""
        ends = ends + self._now.num_tokens
        ends = ends[ends > self._now.last_end]  # no empty documents
        with storage_errors(self._path):
            self._files[0].write(ids.data)
            if len(ends):
                self._files[1].write(ends.astype(_END_DTYPE).data)
        self._now = _Journal(
            position,
            self._now.num_tokens + len(ids),
            self._now.num_documents + len(ends),
            int(ends[-1]) if len(ends) else self._now.last_end,
        )
        if time.monotonic() >= self._next_save:
            self._save_in_background()

    def _save_in_background(self) -> None:
        """Put what is written on disk while encoding goes on."""
        if self._saving is not None and self._saving.is_alive():
            return
        self._check_saved()
        with storage_errors(self._path):
            for file in self._files:
                file.flush()
        self._saving = threading.Thread(target=self._save, args=[self._now], daemon=True)
        self._saving.start()
        self._next_save = time.monotonic() + SECONDS_BETWEEN_SAVES

    def _save(self, journal: _Journal) -> None:
        try:
            with storage_errors(self._path):
                for file in self._files:
                    os.fsync(file.fileno())
            about = {"key": [self._tokenizer_hash, self._made_from], **asdict(journal)}
            with atomic_write(self._journal_path, "w") as journal_file:
                json.dump(about, journal_file)
        except BaseException as error:
            self._save_error = error

    def _check_saved(self) -> None:
        if self._saving is not None:
            self._saving.join()
        if self._save_error is not None:
            raise self._save_error

    def finish(self) -> None:
        """Give the files their names and declare them finished."""
        self._check_saved()
        if self._now.last_end < self._now.num_tokens:  # the last document ends where the ids do
            with storage_errors(self._path):
                self._files[1].write(np.array([self._now.num_tokens], _END_DTYPE).data)
            self._now = replace(
                self._now,
                num_documents=self._now.num_documents + 1,
                last_end=self._now.num_tokens,
            )
        with storage_errors(self._path):
            for file in self._files:
                file.flush()
                os.fsync(file.fileno())
            manifest_path(self._path).unlink(missing_ok=True)  # of an older file
            self._partial.replace(self._path)
            self._partial_documents.replace(documents_path(self._path))
        write_manifest(
            self._path,
            Manifest(
                tokenizer_hash=self._tokenizer_hash,
                vocab_size=self._vocab_size,
                dtype=self._dtype.name,
                num_tokens=self._now.num_tokens,
                num_bytes=self._now.position.num_bytes,
                num_documents=self._now.num_documents,
                made_from=self._made_from,
            ),
        )
        with storage_errors(self._path):
            self._journal_path.unlink(missing_ok=True)
        self.is_finished = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._saving is not None:
            self._saving.join()
        for file in self._files:
            with suppress(OSError):  # a full disk has been reported already
                file.close()
