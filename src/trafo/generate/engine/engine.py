"""Many requests at once on one model: they join and leave between steps.

    engine = Engine(model)
    engine.add(request)
    while engine.has_work:
        for request, piece in engine.step(): ...

The result of a request does not depend on the others: each has its own random generator, and the
compiled step computes a row in the same way whatever else is in the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from trafo.generate.config import EngineConfig, GenerationConfig
from trafo.generate.engine.cache import BLOCK, BlockPool, PagedCache, StepBatch, block_bytes
from trafo.generate.engine.readable_step import ReadableStep
from trafo.generate.engine.scheduler import Chunk, Scheduler, Sequence
from trafo.generate.request import Piece, Request, check_prompt
from trafo.generate.sampling import Token, sample
from trafo.models import CausalLM

Step = Callable[[StepBatch, PagedCache], Tensor]
_MOST_SETTINGS = 1000
_NOT_SAMPLED = RuntimeError("a sequence was not sampled")


class Engine:
    """Not thread-safe: one thread adds, steps and cancels."""

    def __init__(
        self, model: CausalLM, config: EngineConfig | None = None, step: Step | None = None
    ) -> None:
        config = config or EngineConfig()
        size = block_bytes(model)
        least = -(-model.context_length // BLOCK)
        num_blocks = max(least, min(config.cache_bytes // size, least * config.max_running))
        self.model = model
        self.pool = BlockPool(num_blocks)
        self.cache = PagedCache(model, num_blocks)
        self._scheduler = Scheduler(self.pool, config)
        self._step = step or ReadableStep(model)
        self._finished: list[tuple[Request, Piece | Exception]] = []
        self._places: dict[Request, int] = {}
        self._settings: dict[GenerationConfig, GenerationConfig] = {}

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        scheduler = self._scheduler
        return bool(scheduler.running or scheduler.waiting or self._finished)

    @property
    def num_waiting(self) -> int:
        """Sequences that have not begun."""
        return len(self._scheduler.waiting)

    @property
    def num_running(self) -> int:
        """Sequences that are being read or decoded."""
        return len(self._scheduler.running)

    def place(self, request: Request) -> int:
        """Place in the queue after the last step: 1 is next, 0 is not waiting. Thread-safe."""
        return self._places.get(request, 0)

    def add(self, request: Request) -> None:
        """Add a request; its samples wait until there is room."""
        check_prompt(self.model, request.prompt)
        if len(self._settings) > _MOST_SETTINGS:  # later equal ones are sampled apart, no more
            self._settings.clear()
        # Equal settings become one object, which is found by identity: hashing them at every step
        # would take longer than sampling.
        sampling = replace(request.config, seed=0, num_samples=1, stop=(), max_new_tokens=1)
        sampling = self._settings.setdefault(sampling, sampling)
        for number in range(request.config.num_samples):
            if request.config.max_new_tokens:
                self._scheduler.add(Sequence(request, number, self.model.context_length, sampling))
            else:
                self._finished.append((request, Piece(number, "", None, "length")))

    def cancel(self, request: Request) -> None:
        """Drop a request and free its place; nothing happens if it is done."""
        self._scheduler.cancel(request)

    def step(self) -> list[tuple[Request, Piece | Exception]]:
        """One step of the model: a new token for every sequence whose prompt is read.

        A sequence that cannot be sampled ends with its error, and the others go on.
        """
        done, self._finished = self._finished, []
        chunks = self._scheduler.plan()
        if not chunks:
            return done
        logits = self._step(_batch(chunks), self.cache)
        sampling = [chunk.sequence for chunk in chunks if chunk.is_last]
        self._count_as_read(chunks)
        for sequence, token in zip(sampling, _sample(sampling, logits), strict=True):
            piece = token if isinstance(token, Exception) else sequence.add(token)
            done.append((sequence.request, piece))
            if isinstance(piece, Exception) or piece.finish_reason:
                self._scheduler.finish(sequence)
        waiting = dict.fromkeys(sequence.request for sequence in self._scheduler.waiting)
        self._places = {request: place for place, request in enumerate(waiting, start=1)}
        return done

    def _count_as_read(self, chunks: Items[Chunk]) -> None:
        for chunk in chunks:
            sequence = chunk.sequence
            assert sequence.pages is not None
            sequence.num_read += chunk.num_tokens
            self.pool.commit(sequence.pages, sequence.window, sequence.num_read)


def _batch(chunks: Items[Chunk]) -> StepBatch:
    """The tokens of all chunks, side by side."""
    ids: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    longest = max(len(_blocks(chunk)) for chunk in chunks)
    tables = np.zeros((len(chunks), longest), np.int64)
    for row, chunk in enumerate(chunks):
        sequence = chunk.sequence
        begin = sequence.num_read
        first = sequence.start + begin
        ids += sequence.ids[first : first + chunk.num_tokens]
        positions += range(begin, begin + chunk.num_tokens)
        rows += [row] * chunk.num_tokens
        tables[row, : len(_blocks(chunk))] = _blocks(chunk)
        if chunk.is_last:
            wanted.append(len(ids) - 1)
    return StepBatch(
        np.array(ids, np.int64),
        np.array(positions, np.int64),
        np.array(rows, np.int64),
        tables,
        np.array(wanted, np.int64),
    )


def _blocks(chunk: Chunk) -> list[int]:
    assert chunk.sequence.pages is not None
    return chunk.sequence.pages.blocks


@torch.inference_mode()
def _sample(sequences: Items[Sequence], logits: Tensor) -> list[Token | Exception]:
    """Sequences with the same settings are sampled together, by the one definition of sampling."""
    groups: dict[int, list[int]] = defaultdict(list)
    for place, sequence in enumerate(sequences):
        groups[id(sequence.sampling)].append(place)
    tokens: list[Token | Exception] = [_NOT_SAMPLED] * len(sequences)
    for places in groups.values():
        rows = logits if len(places) == len(sequences) else logits[places]
        found = _sample_group([sequences[place] for place in places], rows)
        for place, token in zip(places, found, strict=True):
            tokens[place] = token
    return tokens


def _sample_group(sequences: Items[Sequence], rows: Tensor) -> Items[Token | Exception]:
    """If they cannot be sampled together, each is sampled alone: only some of them are at fault."""
    config = sequences[0].sampling
    generators = [sequence.generator for sequence in sequences]
    texts = [sequence.text for sequence in sequences] if config.looks_back else None
    try:
        return sample(rows, config, generators, texts)
    except Exception as error:
        if len(sequences) == 1:
            return [error]
        alone = zip(sequences, rows[:, None], strict=True)
        return [token for one, row in alone for token in _sample_group([one], row)]
