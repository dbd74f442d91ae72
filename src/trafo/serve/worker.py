"""Engines on a thread. Requests come from the event loop, pieces go back to it.

The engine never waits for a client: the queue of pieces is only bounded by a request's max_tokens.

What belongs to which thread: `Worker.submit`, `leave`, `place` and the private methods below the
comment "On the event loop" run there, and so does everything of a `Subscription`. `take_turn` runs
on the engine's thread. Between them go an inbox, under the lock of `EngineThread.changes`, and
calls that the event loop makes when it gets to them.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from trafo.errors import TrafoError
from trafo.generate.engine import Engine
from trafo.generate.request import Piece, Request
from trafo.serve.errors import ApiError, failed, print_message, queue_full, shutting_down

_MAX_PIECES = 64
"""that a subscription hands out at once"""


class TakesTurns(Protocol):
    """What an engine thread runs."""

    @property
    def has_work(self) -> bool:
        """Whether a turn would do anything."""

    def take_turn(self) -> None:
        """Do one step; must not raise."""


class EngineThread:
    """One thread that steps the engines of all models in turn, while it has any.

    One for all of them, because every thread that runs kernels has its own OpenMP threads, and
    there should not be more of those than cores. Its methods can be called from any thread.
    """

    def __init__(self) -> None:
        self._workers: list[TakesTurns] = []
        self._leaving: dict[TakesTurns, threading.Event] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, worker: TakesTurns) -> None:
        """Give it turns from now on."""
        with self.changes():
            self._workers.append(worker)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
                self._thread.start()

    def remove(self, worker: TakesTurns) -> None:
        """Give it no more turns, and return when its last one has ended."""
        with self.changes():
            if worker not in self._workers:
                return
            gone = self._leaving[worker] = threading.Event()
        gone.wait()

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Change in the block what the thread reads between two turns, then wake it up."""
        with self._changed:
            yield
            self._changed.notify()

    def _run(self) -> None:
        while workers := self._wait_for_work():
            for worker in workers:
                worker.take_turn()

    def _wait_for_work(self) -> list[TakesTurns]:
        """Return the workers with work, or an empty list once no workers are left."""
        with self._changed:
            while True:
                for worker, gone in self._leaving.items():
                    self._workers.remove(worker)
                    gone.set()
                self._leaving.clear()
                if not self._workers:
                    self._thread = None
                    return []
                if workers := [worker for worker in self._workers if worker.has_work]:
                    return workers
                self._changed.wait()


class Subscription:
    """The pieces of several requests as they come, each with the number of its request."""

    def __init__(self, worker: Worker, requests: Sequence[Request], name: str | None) -> None:
        self.requests, self.name = requests, name
        self._worker = worker
        self._numbers = {request: number for number, request in enumerate(requests)}
        self._num_unfinished = sum(request.config.num_samples for request in requests)
        self._queue: asyncio.Queue[tuple[int, Piece] | ApiError] = asyncio.Queue()

    def put(self, request: Request, piece: Piece) -> None:
        """Add a piece."""
        self._queue.put_nowait((self._numbers[request], piece))

    def fail(self, error: ApiError) -> None:
        """End with an error."""
        self._queue.put_nowait(error)

    def close(self) -> None:
        """Cancel what is left."""
        self._worker.leave(self)

    async def batches(self) -> AsyncIterator[list[tuple[int, Piece]]]:
        """Yield all pieces until the last sample is finished, in batches as they arrive.

        A batch is small, and between two of them the event loop can answer others.
        """
        while self._num_unfinished:
            if not self._queue.empty():
                await asyncio.sleep(0)
            items = [await self._queue.get()]
            while not self._queue.empty() and len(items) < _MAX_PIECES:
                items.append(self._queue.get_nowait())
            pieces = [item for item in items if not isinstance(item, ApiError)]
            self._num_unfinished -= sum(piece.finish_reason is not None for _, piece in pieces)
            if pieces:
                yield pieces
            for item in items:
                if isinstance(item, ApiError):
                    raise item


class Worker:
    """Runs an engine until it is stopped, on a thread that several may share."""

    def __init__(
        self, engine: Engine, max_queue: int = 256, thread: EngineThread | None = None
    ) -> None:
        self.engine = engine
        self.thread = thread or EngineThread()
        self._max_queue = max_queue
        self._subscriptions: dict[Request, Subscription] = {}
        self._inbox: list[tuple[Callable[[Request], None], Request]] = []
        self._num_in_inbox = 0  # completions that the engine has not heard of
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to work for the running event loop, which will take the pieces."""
        self._loop = asyncio.get_running_loop()
        self.thread.add(self)

    def stop(self) -> None:
        """Stop after the current step, and end unfinished requests with an error."""
        self.thread.remove(self)
        self._inbox.clear()
        self._num_in_inbox = 0
        self._fail_all(shutting_down())

    @property
    def num_active(self) -> int:
        """Requests that are waiting or running."""
        return len(self._subscriptions)

    @property
    def num_logprobs(self) -> int:
        """Log-probabilities that answers to these requests may hold in memory."""
        return sum(request.num_logprobs for request in self._subscriptions)

    def submit(self, requests: Sequence[Request], name: str | None = None) -> Subscription:
        """Hand requests to the engine, unless the queue is full.

        Their prompts must be ones that the model knows. The client can ask for its place in the
        queue by this name.
        """
        number = sum(request.config.num_samples for request in requests)
        if self.engine.num_waiting + self._num_in_inbox + number > self._max_queue:
            raise queue_full()
        subscription = Subscription(self, requests, name)
        for request in requests:
            self._subscriptions[request] = subscription
        self._send(self.engine.add, requests, number)
        return subscription

    def place(self, name: str) -> int | None:
        """Return the place in the queue of what has that name: 0 if it runs, None if unknown."""
        found = [request for request, each in self._subscriptions.items() if each.name == name]
        return min((self.engine.place(request) for request in found), default=None)

    def leave(self, subscription: Subscription) -> None:
        """Cancel what is left of a subscription."""
        left = [r for r in subscription.requests if self._subscriptions.pop(r, None)]
        if left:
            self._send(self.engine.cancel, left)

    def _send(
        self, action: Callable[[Request], None], requests: Iterable[Request], num_added: int = 0
    ) -> None:
        with self.thread.changes():
            self._inbox += [(action, request) for request in requests]
            self._num_in_inbox += num_added

    # On the engine's thread

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._inbox) or self.engine.has_work

    def take_turn(self) -> None:
        """Take in what is new, then do one step of the engine."""
        with self.thread.changes():
            actions, self._inbox, self._num_in_inbox = self._inbox, [], 0
        refused: list[tuple[Request, Piece | Exception]] = []
        for action, request in actions:
            try:
                action(request)
            except Exception as error:
                refused.append((request, error))
        try:
            self._call(self._deliver, refused + self.engine.step())
        except Exception:
            # A bug must not end the service: print the traceback, fail all requests, continue.
            print_message(traceback.format_exc())
            for request in list(self._subscriptions):
                self.engine.cancel(request)
            failure = ApiError(500, "the engine failed; see the server's messages")
            self._call(self._fail_all, failure)

    def _call(self, function: Callable[..., None], argument: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    # On the event loop

    def _deliver(self, pieces: list[tuple[Request, Piece | Exception]]) -> None:
        for request, piece in pieces:
            subscription = self._subscriptions.get(request)
            if isinstance(piece, Exception):
                _fail(subscription, piece)
            elif subscription is not None:
                subscription.put(request, piece)

    def _fail_all(self, error: ApiError) -> None:
        for subscription in set(self._subscriptions.values()):
            subscription.fail(error)
        self._subscriptions.clear()


def _fail(subscription: Subscription | None, error: Exception) -> None:
    """End one subscription, and print the traceback of a bug."""
    is_bug = not isinstance(error, TrafoError)
    if is_bug:
        print_message("".join(traceback.format_exception(error)))
    if subscription is not None:
        subscription.fail(failed() if is_bug else ApiError(500, str(error)))
