"""Files -> a token file, in parallel, in constant memory, resumed after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trafo.errors import InputError, check_types
from trafo.runtime.progress import progress
from trafo.runtime.remote import RemotePath, parse_path
from trafo.runtime.threads import map_in_order, resolve_num_workers
from trafo.tokenizer.chunks import Chunker, PlannedChunk, Position
from trafo.tokenizer.files import Errors
from trafo.tokenizer.formats.spec import END_OF_TEXT
from trafo.tokenizer.inputs import Inputs, Paths, open_inputs
from trafo.tokenizer.kernels.arrays import Int64s, Specials
from trafo.tokenizer.kernels.bpe import NO_ID
from trafo.tokenizer.token_file import TokenFile, Tokens, dtype_for, send_token_file
from trafo.tokenizer.token_writer import TokenWriter
from trafo.tokenizer.tokenizer import SpecialPolicy, Tokenizer

_CHUNK = 2 << 20


@check_types
def encode_files(
    tokenizer: Tokenizer,
    inputs: Paths | Inputs,
    out: str | Path,
    *,
    num_workers: int | None = None,
    field: str = "text",
    errors: Errors = "strict",
    special: SpecialPolicy = "allow",
    end_of_document: str | None = None,
    backend: EncodeBackend | None = None,
) -> TokenFile:
    """Encode files, folders or globs into the token file `out`.

    A document is a record of JSON lines or Parquet, a text file, or the text up to an
    `<|endoftext|>` in it; `end_of_document` names a special token to write after each record and
    file. If `out` exists and was made from the same input in the same way, nothing is done; if an
    earlier run was killed, it is finished. If `out` is a URL, the file is made in the cache folder
    and then sent; the copy stays there. `backend` encodes on other machines (see
    `trafo.cluster`), with the same result.
    """
    inputs = open_inputs(inputs, field, errors)
    fingerprint = {
        **inputs.fingerprint(),
        "special": special,
        "end_of_document": end_of_document,
    }
    workers = resolve_num_workers(num_workers)
    job = EncodingJob(inputs, special, end_of_document)
    encoder = ChunkEncoder(tokenizer, job)
    place = parse_path(out)
    path = place if isinstance(place, Path) else place.local_copy
    with TokenWriter(path, tokenizer.hash, tokenizer.vocab_size, fingerprint) as writer:
        if not writer.is_finished:
            with progress("encoding", total=inputs.size, unit="MB", scale=1e6) as bar:
                bar.advance(encoder.chunker.disk_bytes_before(writer.position))
                if backend is None:
                    chunks = encoder.chunker.plan(writer.position)
                    encoded = map_in_order(encoder.encode, chunks, workers)
                else:
                    encoded = backend(tokenizer, job, writer.position)
                for part in encoded:
                    writer.write(part.ids, part.document_ends, part.num_bytes, part.next)
                    bar.advance(part.disk_bytes)
            writer.finish()
    if isinstance(place, RemotePath):
        send_token_file(path, place)
    return TokenFile.open(path)


class Encoded(NamedTuple):
    """The ids of a chunk, and where in them documents end."""

    ids: Tokens
    document_ends: Int64s
    num_bytes: int  # of text
    next: Position  # where in the input the next chunk begins
    disk_bytes: int  # what it adds to the bytes read from disk; for progress


@dataclass(frozen=True)
class EncodingJob:
    """Everything but the tokenizer that decides the ids of a corpus."""

    inputs: Inputs
    special: SpecialPolicy
    end_of_document: str | None


EncodeBackend = Callable[[Tokenizer, EncodingJob, Position], Iterator[Encoded]]
"""encodes, given a tokenizer, a job and where to start, everything from there in order"""


class ChunkEncoder:
    """Encodes chunks, in any number of threads."""

    def __init__(self, tokenizer: Tokenizer, job: EncodingJob) -> None:
        end_of_document = job.end_of_document
        self._finder = tokenizer.special_finder(job.special)
        self.chunker = Chunker(job.inputs, tokenizer.pattern, self._finder, _CHUNK)
        self._refuse = job.special == "refuse"
        ids = tokenizer.special_tokens
        if end_of_document is not None and end_of_document not in ids:
            raise InputError(
                f"the tokenizer has no special token {end_of_document!r}",
                hint=f"it has {', '.join(map(repr, ids)) or 'none'}",
            )
        self._document_end_id = int(NO_ID) if end_of_document is None else ids[end_of_document]
        # For each special token, and last for the end of a document: whether a document ends there,
        # and the number of ids written for it.
        self._is_end = np.array([token in (END_OF_TEXT, end_of_document) for token in ids] + [True])
        self._num_ids = np.array([1] * len(ids) + [int(end_of_document is not None)])
        self._tokenizer = tokenizer
        self._dtype = np.dtype(dtype_for(tokenizer.vocab_size)).newbyteorder("<")

    def encode(self, plan: PlannedChunk) -> Encoded:
        """Read a chunk and encode it."""
        with self._tokenizer.encoder() as encoder:
            chunk = self.chunker.read(plan)
            data, specials = chunk.data, chunk.specials
            if self._refuse:
                self._refuse_specials(specials, plan)
            ids = encoder.encode_chunk(data, specials, self._document_end_id)
            ends = self._document_ends(specials, encoder.special_positions())
            ids = ids.astype(self._dtype)
            return Encoded(ids, ends, chunk.num_bytes, plan.next, plan.disk_bytes)

    def _refuse_specials(self, specials: Specials, plan: PlannedChunk) -> None:
        found = specials[specials[:, 2] < self._finder.document_end]
        if len(found):
            token = self._finder.tokens[int(found[0, 2])]
            raise InputError(
                f"the text contains the special token {token!r}",
                where=str(plan.file.path),
                hint="special='ignore' takes it as plain text, special='allow' as the token",
            )

    def _document_ends(self, specials: Specials, places: Int64s) -> Int64s:
        """The number of ids before the end of each document."""
        kinds = specials[:, 2]
        return np.unique((places + self._num_ids[kinds])[self._is_end[kinds]])
