"""Programs that are killed at any instant: one process forks a child for each run.

The process has everything loaded, so that a run begins at once.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def drive_program(program: str, *arguments: str) -> list[list[Any]]:
    """Run a program that forks; the results that it prints as JSON."""
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results: list[list[Any]] = json.loads(run.stdout)
    return results


def in_child(prepare: Callable[[], None], work: Callable[[], None]) -> int:
    """A new process that does this and ends; its id."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # so that it never outlives the test
        try:
            prepare()
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    return child


def status_of(child: int) -> int:
    """How a child ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(step: int, functions: Iterable[tuple[Any, str]]) -> Callable[[], None]:
    """Count the calls of these functions; before an odd step, or after an even one, die."""
    calls = 0
    lock = threading.Lock()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            with lock:
                calls += 1
                is_last = calls == step
            if is_last and step % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, call)

    def prepare() -> None:
        for owner, name in functions:
            counted(owner, name)

    return prepare
