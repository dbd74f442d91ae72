"""A corpus encoded on a cluster: pieces of the text -> their ids, which the driver writes in order.

The ids of a few pieces are under way at a time, in Ray's shared memory; the driver holds one.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from contextlib import contextmanager

from trafo.cluster.connect import check_shared_files, connected
from trafo.cluster.counting import piece_size
from trafo.cluster.tasks import Shared, Tasks, map_in_order
from trafo.tokenizer.chunks import Piece, Position, chunks_of, plan_pieces
from trafo.tokenizer.encode_corpus import (
    ChunkEncoder,
    EncodeBackend,
    Encoded,
    EncodingJob,
)
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.tokenizer import Tokenizer

SMALLEST_PIECE, LARGEST_PIECE = 2 << 20, 32 << 20  # bytes


@contextmanager
def encoding_on(on: str, num_workers: int | None = None) -> Iterator[EncodeBackend]:
    """Encode on a cluster for `encode_files`, with the arguments of `connected`."""
    with connected(on, num_workers):
        yield encode_pieces


def encode_pieces(tokenizer: Tokenizer, job: EncodingJob, start: Position) -> Iterator[Encoded]:
    """Encode all from `start`, as a `trafo.tokenizer.encode_corpus.EncodeBackend`."""
    check_shared_files(job.inputs)
    size = piece_size(job.inputs.size, SMALLEST_PIECE, LARGEST_PIECE)
    pieces = plan_pieces(ChunkEncoder(tokenizer, job).chunker, size, start)
    # `marshal` takes a sixth of the time of `pickle`.
    spec = marshal.dumps(tuple(vars(tokenizer.spec).values()))
    tasks = Tasks(encode_piece, (tokenizer.hash, spec, job))
    for parts in map_in_order(tasks, pieces):
        yield from parts


Sent = tuple[str, bytes, EncodingJob]  # the tokenizer's hash and spec, and the job

_last: dict[str, Tokenizer] = {}  # of this process's last job, by its hash; its cache is warm


def encode_piece(shared: Shared[Sent], piece: Piece) -> list[Encoded]:
    """A task: the ids of a piece, chunk by chunk: to join them would only copy them."""
    encoder = shared.prepare(_encoder)
    return [encoder.encode(chunk) for chunk in chunks_of(piece, encoder.chunker)]


def _encoder(sent: Sent) -> ChunkEncoder:
    tokenizer_hash, spec, job = sent
    if tokenizer_hash not in _last:
        _last.clear()
        _last[tokenizer_hash] = Tokenizer.from_spec(TokenizerSpec(*marshal.loads(spec)))
    return ChunkEncoder(_last[tokenizer_hash], job)
