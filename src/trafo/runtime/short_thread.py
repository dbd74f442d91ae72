"""Heavy work in a thread that ends with it, so that it leaves no OpenMP threads behind.

OpenMP gives every thread that computes helpers of its own, and keeps them while that thread lives.
Once there are more helpers than cores, they stop spinning while they wait for work: the hundred
short pieces of a decoding step then take up to three times as long. So in a program with an engine,
all other heavy work runs in threads that end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_short_thread(job: Callable[[], Result]) -> Result:
    """What `job` returns or raises; waits for it."""
    with ThreadPoolExecutor(1, "job") as pool:
        return pool.submit(job).result()


async def in_short_thread_async(job: Callable[[], Result]) -> Result:
    """The same for an event loop, which goes on meanwhile."""
    pool = ThreadPoolExecutor(1, "job")
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, job)
    finally:
        pool.shutdown(wait=False)
