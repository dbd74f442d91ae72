"""A corpus encoded on a cluster: pieces of the text -> their ids, which the driver writes in order.

The ids of a few pieces are under way at a time, in Ray's shared memory; the driver holds one.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from trafo.cluster.connect import connected, refuse_private_files
from trafo.cluster.counting import piece_size
from trafo.cluster.tasks import Shared, Tasks, map_in_order
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.reading.chunks import Position
from trafo.tokenizer.reading.pieces import Piece, chunks_of, plan_pieces
from trafo.tokenizer.token_files.encode_files import (
    ChunkEncoder,
    Encoded,
    EncodeElsewhere,
    EncodingJob,
)
from trafo.tokenizer.tokenizer import Tokenizer

SMALLEST_PIECE, LARGEST_PIECE = 2 << 20, 32 << 20  # bytes


@contextmanager
def encoding_on(on: str, num_workers: int | None = None) -> Iterator[EncodeElsewhere]:
    """For `encode_files`: encodes on a cluster; see `connected` for the arguments."""
    with connected(on, num_workers):
        yield encode_pieces


def encode_pieces(tokenizer: Tokenizer, job: EncodingJob, start: Position) -> Iterator[Encoded]:
    """All from `start`; a `trafo.tokenizer.token_files.encode_files.EncodeElsewhere`."""
    refuse_private_files(job.inputs)
    size = piece_size(job.inputs.size, SMALLEST_PIECE, LARGEST_PIECE)
    pieces = plan_pieces(ChunkEncoder(tokenizer, job).chunker, size, start)
    tasks = Tasks(encode_piece, (SentTokenizer.of(tokenizer), job))
    for parts in map_in_order(tasks, pieces):
        yield from parts


class SentTokenizer(NamedTuple):
    """A tokenizer on its way to the workers, who do not make the one of their last job again."""

    hash: str
    spec: bytes

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SentTokenizer:
        """Written by `marshal`, which takes a sixth of the time of `pickle`."""
        return cls(tokenizer.hash, marshal.dumps(tuple(vars(tokenizer.spec).values())))

    def arrived(self) -> Tokenizer:
        """The tokenizer, in a worker."""
        if self.hash not in _last:
            _last.clear()
            _last[self.hash] = Tokenizer.from_spec(TokenizerSpec(*marshal.loads(self.spec)))
        return _last[self.hash]


_last: dict[str, Tokenizer] = {}  # of this process, by its hash; it knows many words already


def encode_piece(shared: Shared[tuple[SentTokenizer, EncodingJob]], piece: Piece) -> list[Encoded]:
    """A task: the ids of a piece, chunk by chunk: to join them would only copy them."""
    encoder = shared.made(_encoder)
    return [encoder.encode(chunk) for chunk in chunks_of(piece, encoder.chunker)]


def _encoder(sent: tuple[SentTokenizer, EncodingJob]) -> ChunkEncoder:
    tokenizer, job = sent
    return ChunkEncoder(tokenizer.arrived(), job)
