"""The token file: the ids of a whole corpus, memory-mapped, with a manifest.

corpus.tokens             the ids, uint16 or uint32, little endian, nothing else
corpus.tokens.documents   uint64: for each document, where it ends (number of ids before)
corpus.tokens.json        the manifest, written last: without it the file is not finished
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.json_text import parse_json
from trafo.runtime.remote import RemotePath, parse_path

Tokens = NDArray[np.uint16] | NDArray[np.uint32]

_FORMAT = "trafo tokens"
_VERSION = 2
_BLOCK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a token file holds."""

    tokenizer_hash: str
    vocab_size: int
    dtype: str
    num_tokens: int
    num_bytes: int
    num_documents: int
    checksum: int
    """CRC-32 of the ids"""
    documents_checksum: int
    """CRC-32 of where documents end"""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """of the text and how it was encoded"""


def fetch_token_file(place: str | Path) -> Path:
    """Return the local path of a token file, of which a remote one is copied first."""
    path = parse_path(place)
    if isinstance(path, Path):
        return path
    copy, remote_manifest = path.local_copy, RemotePath(f"{path}.json")
    if not remote_manifest.exists():
        raise InputError(
            "no such token file, or not finished: it has no manifest",
            where=str(path),
            hint="make it with `trafo tokenizer encode`",
        )
    if not _is_up_to_date(copy, path):
        manifest_path(copy).unlink(missing_ok=True)
        path.fetch(copy)
        RemotePath(f"{path}.documents").fetch(documents_path(copy))
        remote_manifest.fetch(manifest_path(copy))
    return copy


def send_token_file(copy: Path, to: RemotePath) -> None:
    """Send a finished token file, the manifest last, unless it has been sent before."""
    if not _is_up_to_date(copy, to):
        RemotePath(f"{to}.json").remove()  # of an older file
        to.send(copy)
        RemotePath(f"{to}.documents").send(documents_path(copy))
        RemotePath(f"{to}.json").send(manifest_path(copy))


def _is_up_to_date(copy: Path, path: RemotePath) -> bool:
    """Whether the copy and the remote file have the same manifest, which has their checksums."""
    here, there = manifest_path(copy), RemotePath(f"{path}.json")
    return here.exists() and there.exists() and here.read_bytes() == there.read_bytes()


def manifest_path(path: Path) -> Path:
    """Where the manifest of a token file is."""
    return path.with_name(path.name + ".json")


def documents_path(path: Path) -> Path:
    """Where the document ends of a token file are."""
    return path.with_name(path.name + ".documents")


def dtype_for(vocab_size: int) -> str:
    """uint16 if every id fits, else uint32."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


@dataclass(frozen=True)
class TokenFile:
    """An open token file. Nothing is read until it is used."""

    path: Path
    manifest: Manifest
    ids: Tokens
    document_ends: NDArray[np.uint64]

    @classmethod
    def open(cls, path: str | Path, tokenizer_hash: str | None = None) -> TokenFile:
        """Open a file, check its size and, with a hash, refuse one of another tokenizer.

        A URL is fetched to a local copy, unless that is up to date.
        """
        path = fetch_token_file(path)
        manifest = read_token_manifest(path)
        ids = _map_file(path, manifest.dtype, manifest.num_tokens)
        ends = _map_file(documents_path(path), "uint64", manifest.num_documents)
        token_file = cls(path, manifest, ids, ends)
        if tokenizer_hash is not None:
            token_file.check_tokenizer(tokenizer_hash)
        return token_file

    def verify(self) -> TokenFile:
        """Check both files against their checksums, reading all of them, and return this."""
        for path, expected in (
            (self.path, self.manifest.checksum),
            (documents_path(self.path), self.manifest.documents_checksum),
        ):
            if _checksum(path) != expected:
                raise FormatError(
                    "damaged: wrong checksum", where=str(path), hint="encode the text again"
                )
        return self

    def check_tokenizer(self, tokenizer_hash: str) -> None:
        """Refuse any tokenizer but the one that made the ids."""
        if tokenizer_hash != self.manifest.tokenizer_hash:
            raise InputError(
                f"made by another tokenizer ({self.manifest.tokenizer_hash[:12]}, "
                f"not {tokenizer_hash[:12]})",
                where=str(self.path),
                hint="encode the text again with this tokenizer",
            )

    def __len__(self) -> int:
        return self.manifest.num_tokens


def _checksum(path: Path) -> int:
    """Read, not mapped: pages of a map count as memory."""
    found = 0
    with storage_errors(path, "reading"), path.open("rb") as file:
        while data := file.read(_BLOCK):
            found = zlib.crc32(data, found)
    return found


def write_token_manifest(path: Path, manifest: Manifest) -> None:
    """Declare a token file finished."""
    about = {"format": _FORMAT, "version": _VERSION, **asdict(manifest)}
    about["made_from"] = about.pop("fingerprint")  # its name in the file
    with atomic_write(manifest_path(path), "w") as file:
        json.dump(about, file, indent=2)


def read_token_manifest(path: Path) -> Manifest:
    """The manifest of a token file."""
    where = manifest_path(path)
    if not where.exists():
        raise InputError(
            "is not a finished token file: it has no manifest" if path.exists() else "no such file",
            where=str(path),
            hint="make it with `trafo tokenizer encode`",
        )
    try:
        about = parse_json(where.read_text())
        if about.pop("format") != _FORMAT or about.pop("version") != _VERSION:
            raise ValueError
        manifest = Manifest(fingerprint=about.pop("made_from", {}), **about)
        if not _is_valid(manifest):
            raise ValueError
        return manifest
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FormatError(
            "is not a manifest that this version reads",
            where=str(where),
            hint="encode the text again",
        ) from None


def _is_valid(manifest: Manifest) -> bool:
    """Whether every field has its type: the file may have been edited."""
    types = {"tokenizer_hash": str, "dtype": str, "fingerprint": dict}
    for name, value in vars(manifest).items():
        if type(value) is not types.get(name, int) or (type(value) is int and value < 0):
            return False
    return manifest.dtype == dtype_for(manifest.vocab_size)


def _map_file(path: Path, dtype: str, length: int) -> NDArray[Any]:
    """A file as an array that the system reads as needed."""
    item = np.dtype(dtype).newbyteorder("<")
    with storage_errors(path, "reading"):
        size = path.stat().st_size
        if size != length * item.itemsize:
            raise FormatError(
                f"has {size:,} bytes where the manifest says {length * item.itemsize:,}",
                where=str(path),
                hint="the file was cut off or changed; encode the text again",
            )
        return np.memmap(path, item, "r") if length else np.empty(0, item)
