"""A corpus encoded on a cluster: pieces of the text -> their ids, which the driver writes in order.

The ids of a few pieces are under way at a time, in Ray's shared memory; the driver holds one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trafo.cluster.connect import connected, refuse_private_files
from trafo.cluster.counting import piece_size
from trafo.cluster.tasks import Shared, Tasks, map_in_order
from trafo.tokenizer.reading.chunks import Chunker, Position
from trafo.tokenizer.reading.pieces import Piece, chunks_of, plan_pieces
from trafo.tokenizer.token_files.encode_files import (
    ChunkEncoder,
    Encoded,
    EncodeElsewhere,
    EncodingJob,
    joined,
)
from trafo.tokenizer.tokenizer import Tokenizer

SMALLEST_PIECE, LARGEST_PIECE = 2 << 20, 32 << 20  # bytes


@contextmanager
def encoding_on(on: str, num_workers: int | None = None) -> Iterator[EncodeElsewhere]:
    """For `encode_files`: encodes on a cluster; see `connected` for the arguments."""
    with connected(on, num_workers):
        yield encode_pieces


def encode_pieces(job: EncodingJob, chunker: Chunker, start: Position) -> Iterator[Encoded]:
    """All pieces from `start`; a `trafo.tokenizer.token_files.encode_files.EncodeElsewhere`."""
    refuse_private_files(job.inputs)
    size = piece_size(job.inputs.size, SMALLEST_PIECE, LARGEST_PIECE)
    yield from map_in_order(Tasks(encode_piece, job), plan_pieces(chunker, size, start))


def encode_piece(shared: Shared[EncodingJob], piece: Piece) -> Encoded:
    """A task: the ids of a piece."""
    encoder = shared.made(_encoder)
    parts = [encoder.encode(chunk) for chunk in chunks_of(piece, encoder.chunker)]
    return joined([encoder.nothing, *parts])._replace(next=piece.end, disk_bytes=piece.disk_bytes)


_last: list[Tokenizer] = []
"""of this process: another job with the same tokenizer finds it made, and its words known"""


def _encoder(job: EncodingJob) -> ChunkEncoder:
    if not _last or _last[0].spec != job.spec:
        _last[:] = [Tokenizer.from_spec(job.spec)]
    return ChunkEncoder(_last[0], job)
