"""Files -> a token file, in parallel, in constant memory, and going on after a kill."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.runtime.progress import progress
from trafo.tokenizer.formats.spec import END_OF_TEXT
from trafo.tokenizer.kernels.arrays import Specials
from trafo.tokenizer.kernels.bpe import NO_ID
from trafo.tokenizer.reading.chunks import Chunker
from trafo.tokenizer.reading.positions import Read, disk_bytes_before, read_all
from trafo.tokenizer.reading.records import Errors
from trafo.tokenizer.reading.sources import Paths, fingerprint, open_sources
from trafo.tokenizer.reading.workers import checked_workers, map_in_order
from trafo.tokenizer.token_files.token_file import TokenFile, Tokens, dtype_for
from trafo.tokenizer.token_files.writer import TokenWriter
from trafo.tokenizer.tokenizer import SpecialPolicy, Tokenizer

_CHUNK = 2 << 20


def encode_files(
    tokenizer: Tokenizer,
    inputs: Paths,
    out: str | Path,
    *,
    num_workers: int | None = None,
    field: str = "text",
    errors: Errors = "strict",
    special: SpecialPolicy = "allow",
    end_of_document: str | None = None,
) -> TokenFile:
    """Encode files, folders or globs into the token file `out`.

    A document is a record of JSON lines or Parquet, a file of text, or what stands before an
    `<|endoftext|>` in it; `end_of_document` names a special token to write behind each of the
    first two. If `out` is there already, made from the same input in the same way, nothing is
    done; if an earlier run was killed, it is finished.
    """
    out = Path(out)
    made_from = {
        "inputs": fingerprint(inputs),
        "field": field,
        "errors": errors,
        "special": special,
        "end_of_document": end_of_document,
    }
    sources = open_sources(inputs, field, errors)
    workers = checked_workers(num_workers)
    chunk_encoder = ChunkEncoder(tokenizer, special, end_of_document)
    chunker = Chunker(tokenizer.pattern, chunk_encoder.finder, errors, _CHUNK)
    total = sum(source.size for source in sources)
    with TokenWriter(out, tokenizer.hash, tokenizer.vocab_size, made_from) as writer:
        if not writer.is_finished:
            with progress("encoding", total=total, unit="MB", scale=1e6) as bar:
                bar.advance(disk_bytes_before(sources, writer.position))
                reads = read_all(sources, chunker, writer.position)
                for encoded in map_in_order(chunk_encoder.encode, reads, workers):
                    writer.write(encoded.ids, encoded.document_ends, encoded.read.position)
                    bar.advance(encoded.read.disk_bytes)
            writer.finish()
    return TokenFile.open(out)


@dataclass(frozen=True)
class EncodedChunk:
    """The ids of a chunk, and where in them documents end."""

    ids: Tokens
    document_ends: NDArray[np.int64]
    read: Read


class ChunkEncoder:
    """Encodes chunks, in any number of threads."""

    def __init__(
        self, tokenizer: Tokenizer, special: SpecialPolicy, end_of_document: str | None
    ) -> None:
        self.finder = tokenizer.special_finder(special)
        self._refuse = special == "refuse"
        ids = tokenizer.special_tokens
        if end_of_document is not None and end_of_document not in ids:
            raise InputError(
                f"the tokenizer has no special token {end_of_document!r}",
                hint=f"it has {', '.join(map(repr, ids)) or 'none'}",
            )
        self._document_end_id = int(NO_ID) if end_of_document is None else ids[end_of_document]
        # Of each kind of cut, the special tokens in their order and then the end of a document:
        # whether a document ends there, and the number of ids that stand for it.
        self._is_end = np.array([token in (END_OF_TEXT, end_of_document) for token in ids] + [True])
        self._num_ids = np.array([1] * len(ids) + [int(end_of_document is not None)])
        self._tokenizer = tokenizer
        self._dtype = np.dtype(dtype_for(tokenizer.vocab_size)).newbyteorder("<")

    def encode(self, read: Read) -> EncodedChunk:
        """The ids of one chunk."""
        chunk = read.chunk.read()
        if (
            self._refuse
            and (found := chunk.specials[chunk.specials[:, 2] < self.finder.document_end]).size
        ):
            token = self.finder.tokens[int(found[0, 2])]
            raise InputError(
                f"the text contains the special token {token!r}",
                where=str(read.path),
                hint="special='ignore' takes it as plain text, special='allow' as the token",
            )
        data, specials = chunk.data, chunk.specials
        with self._tokenizer.encoder() as encoder:
            ids = encoder.encode_piece(data, 0, len(data), specials, self._document_end_id)
            places = encoder.places_of_specials()
            return EncodedChunk(
                ids.astype(self._dtype), self._document_ends(specials, places), read
            )

    def _document_ends(self, specials: Specials, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of ids before the end of each document."""
        kinds = specials[:, 2]
        return np.unique((places + self._num_ids[kinds])[self._is_end[kinds]])
