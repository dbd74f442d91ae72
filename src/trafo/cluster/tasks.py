"""A function for each of many items, on all CPUs of the cluster, a bounded number at a time.

Ray runs a task again if its worker or its node dies. An error that a task raises ends the job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from trafo.cluster.connect import num_cpus, unwrap_error
from trafo.errors import InputError, StorageError

Job = TypeVar("Job")
Made = TypeVar("Made")

_TASKS_PER_CPU = 2  # one running and one waiting, so that no CPU waits for the driver
_SECONDS_BETWEEN_LOOKS = 5.0


class Shared(Generic[Job]):
    """What all tasks of a job share, sent to a worker once and prepared there once."""

    _kept: ClassVar[dict[str, Any]] = {}  # of this process, which works on one job at a time

    def __init__(self, job: Job) -> None:
        import ray

        self._key = uuid4().hex
        self._job = [ray.put(job)]  # in a list, or Ray would send the job with every task

    def prepare(self, make: Callable[[Job], Made]) -> Made:
        """What `make` makes of the job, kept for the next task."""
        import ray

        key = f"{self._key} {make.__qualname__}"
        if key not in self._kept:
            self._kept.clear()
            self._kept[key] = make(ray.get(self._job[0]))
        kept: Made = self._kept[key]
        return kept


class Tasks:
    """Tasks of one function of a job and more arguments."""

    def __init__(self, function: Callable[..., Any], job: object) -> None:
        import ray

        self._ray = ray
        self._function = _task(function)
        self._shared: Shared[Any] = Shared(job)
        self._cpus, self._look_at = 1, 0.0
        self._under_way: list[Any] = []

    @property
    def has_room(self) -> bool:
        """Whether another task would find a CPU soon, as nodes may have come or gone."""
        if time.monotonic() > self._look_at:
            self._cpus, self._look_at = num_cpus(), time.monotonic() + _SECONDS_BETWEEN_LOOKS
        return len(self._under_way) < _TASKS_PER_CPU * max(1, self._cpus)

    def submit(self, *arguments: Any, num_returns: int = 1) -> list[Any]:
        """Begin a task, and return references to what it will return."""
        task = self._function.options(num_returns=num_returns)
        references = task.remote(self._shared, *arguments)
        references = [references] if num_returns == 1 else list(references)
        self._under_way.append(references[0])
        return references

    def next_done(self) -> tuple[Any, Any]:
        """Of the task that ends next: the reference to its first return value, and that value."""
        [reference], _ = self._ray.wait(self._under_way, num_returns=1)
        return reference, self.get(reference)

    def get(self, reference: Any) -> Any:
        """One of the values that a task returned."""
        try:
            value = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise unwrap_error(error) from None
        except self._ray.exceptions.RayError as error:
            raise _cluster_error(error) from error
        with suppress(ValueError):  # only the first of a task's values is kept there
            self._under_way.remove(reference)
        return value

    @contextmanager
    def cancel_on_exit(self) -> Iterator[None]:
        """End what is still under way after the block: after an error, or Ctrl-C."""
        try:
            yield
        finally:
            for reference in self._under_way:
                with suppress(Exception):
                    self._ray.cancel(reference, force=True)
            self._under_way.clear()


@lru_cache(maxsize=8)
def _task(function: Callable[..., Any]) -> Any:
    """Wrap a function for Ray once, so that workers need not fetch it for each job."""
    import ray

    return ray.remote(num_cpus=1, max_retries=-1)(function)


def _cluster_error(error: Exception) -> StorageError | InputError:
    """A failure of the cluster, not of a task: one line."""
    what = str(error).strip().splitlines()[0]
    if "OutOfDisk" in type(error).__name__ or "ObjectStoreFull" in type(error).__name__:
        hint = "free space on the nodes' disks, where Ray keeps what memory cannot hold"
        return StorageError(f"the cluster has no room for results: {what}", hint=hint)
    hint = "run the same command again to resume"
    return InputError(f"the cluster failed: {type(error).__name__}: {what}", hint=hint)


def map_in_order(tasks: Tasks, items: Iterable[Any]) -> Iterator[Any]:
    """The results in the order of the items, only a few of which are under way at a time."""
    waiting: deque[Any] = deque()
    with tasks.cancel_on_exit():
        for item in items:
            while waiting and not tasks.has_room:
                yield tasks.get(waiting.popleft())
            waiting.extend(tasks.submit(item))
        while waiting:
            yield tasks.get(waiting.popleft())
