"""An engine on another thread. Requests come from the event loop, pieces go back to it.

The engine never waits for a client: the queue of pieces is only bounded by a request's max_tokens.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from trafo.errors import TrafoError
from trafo.generate.engine import Engine
from trafo.generate.request import Piece, Request
from trafo.serve.engine_thread import EngineThread
from trafo.serve.errors import ApiError, failed, queue_full, refusing, shutting_down
from trafo.serve.messages import tell

Numbered = tuple[int, Piece]
_MOST_PIECES = 64
"""that a subscription hands out at once"""


class Subscription:
    """The pieces of several requests as they come, each with the number of its request."""

    def __init__(self, worker: Worker, requests: Sequence[Request], name: str | None) -> None:
        self.requests = requests
        self.name = name
        self._worker = worker
        self._numbers = {request: number for number, request in enumerate(requests)}
        self._left = sum(request.config.num_samples for request in requests)
        self._queue: asyncio.Queue[Numbered | ApiError] = asyncio.Queue()

    def put(self, request: Request, piece: Piece) -> None:
        """Called on the event loop."""
        self._queue.put_nowait((self._numbers[request], piece))

    def fail(self, error: ApiError) -> None:
        """End with an error."""
        self._queue.put_nowait(error)

    def close(self) -> None:
        """Cancel what is left."""
        self._worker.leave(self)

    async def batches(self) -> AsyncIterator[list[Numbered]]:
        """All pieces until the last sample is finished, in batches as they arrive.

        A batch is small, and between two of them the event loop can answer others.
        """
        while self._left:
            if not self._queue.empty():
                await asyncio.sleep(0)
            items = [await self._queue.get()]
            while not self._queue.empty() and len(items) < _MOST_PIECES:
                items.append(self._queue.get_nowait())
            pieces = [item for item in items if not isinstance(item, ApiError)]
            self._left -= sum(piece.finish_reason is not None for _, piece in pieces)
            if pieces:
                yield pieces
            for item in items:
                if isinstance(item, ApiError):
                    raise item


class Worker:
    """Runs an engine until it is stopped; several may share a thread."""

    def __init__(
        self, engine: Engine, max_queue: int = 256, thread: EngineThread | None = None
    ) -> None:
        self.engine = engine
        self.thread = thread or EngineThread()
        self._max_queue = max_queue
        self._subscriptions: dict[Request, Subscription] = {}
        self._inbox: list[tuple[Callable[[Request], None], Request]] = []
        self._num_coming = 0  # completions in the inbox
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to work; called on the event loop that will take the pieces."""
        self._loop = asyncio.get_running_loop()
        self.thread.add(self)

    def stop(self) -> None:
        """Stop after the current step; unfinished requests get an error."""
        self.thread.remove(self)
        self._inbox.clear()
        self._num_coming = 0
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
        """Hand requests to the engine; refused if the model or the queue cannot take them.

        The client can ask for its place in the queue by this name.
        """
        with refusing("prompt"):
            for request in requests:
                self.engine.check(request)
        wanted = sum(request.config.num_samples for request in requests)
        if self.engine.num_waiting + self._num_coming + wanted > self._max_queue:
            raise queue_full()
        subscription = Subscription(self, requests, name)
        for request in requests:
            self._subscriptions[request] = subscription
        self._tell(self.engine.add, requests, wanted)
        return subscription

    def place(self, name: str) -> int | None:
        """Place in the queue of what was submitted by that name; 0: it runs; None: unknown."""
        found = [request for request, each in self._subscriptions.items() if each.name == name]
        return min((self.engine.place(request) for request in found), default=None)

    def leave(self, subscription: Subscription) -> None:
        """Cancel what is left of a subscription."""
        left = [r for r in subscription.requests if self._subscriptions.pop(r, None)]
        if left:
            self._tell(self.engine.cancel, left)

    def _tell(
        self, action: Callable[[Request], None], requests: Iterable[Request], num_coming: int = 0
    ) -> None:
        with self.thread.changes():
            self._inbox += [(action, request) for request in requests]
            self._num_coming += num_coming

    # On the engine's thread

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._inbox) or self.engine.has_work

    def take_turn(self) -> None:
        """Take in what is new, then one step of the engine."""
        with self.thread.changes():
            actions, self._inbox, self._num_coming = self._inbox, [], 0
        refused: list[tuple[Request, Piece | Exception]] = []
        for action, request in actions:
            try:
                action(request)
            except Exception as error:
                refused.append((request, error))
        try:
            self._call(self._deliver, refused + self.engine.step())
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """A bug must not end the service: print the traceback, fail all requests, continue."""
        tell(traceback.format_exc())
        for request in list(self._subscriptions):
            self.engine.cancel(request)
        self._call(self._fail_all, ApiError(500, "the engine failed; see the server's messages"))

    def _call(self, function: Callable[..., None], argument: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    # On the event loop

    def _deliver(self, pieces: list[tuple[Request, Piece | Exception]]) -> None:
        for request, piece in pieces:
            subscription = self._subscriptions.get(request)
            if isinstance(piece, Exception):
                self._fail(subscription, piece)
            elif subscription is not None:
                subscription.put(request, piece)

    def _fail_all(self, error: ApiError) -> None:
        for subscription in set(self._subscriptions.values()):
            subscription.fail(error)
        self._subscriptions.clear()

    def _fail(self, subscription: Subscription | None, error: Exception) -> None:
        """The others go on; a bug's traceback is printed."""
        is_bug = not isinstance(error, TrafoError)
        if is_bug:
            tell("".join(traceback.format_exception(error)))
        if subscription is not None:
            subscription.fail(failed() if is_bug else ApiError(500, str(error)))
