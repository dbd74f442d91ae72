"""Threads for kernels, which run without the GIL."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """As many threads as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int | None = None
) -> list[Result]:
    """The results in order. One item or one worker needs no thread."""
    items = list(items)
    num_workers = min(num_workers or default_workers(), len(items))
    if num_workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(num_workers) as pool:
        return list(pool.map(function, items))
