"""What runs in a short thread leaves no thread behind."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
import torch

from trafo.runtime.short_thread import in_short_thread, in_short_thread_async

THREADS = Path("/proc/self/task")


def num_threads():
    return sum(1 for _ in THREADS.iterdir())


def compute():
    """Enough for OpenMP to start its threads."""
    torch.ones(1_000_000).add(1).sum()
    return threading.current_thread().name


def in_event_loop(job):
    return asyncio.run(in_short_thread_async(job))


def test_returns_and_raises():
    assert in_short_thread(lambda: 7) == 7
    assert in_event_loop(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        in_short_thread(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        in_event_loop(lambda: 1 // 0)


@pytest.mark.skipif(not THREADS.exists(), reason="counts threads by /proc")
@pytest.mark.parametrize("run", [in_short_thread, in_event_loop])
def test_no_thread_is_left(run):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        threads = num_threads()
        assert run(compute) != threading.current_thread().name
        until = time.monotonic() + 10
        while num_threads() > threads and time.monotonic() < until:
            time.sleep(0.01)
        assert num_threads() <= threads
    finally:
        torch.set_num_threads(before)
