"""How kernels are made: compiled by numba on first use, kept on disk, run without the GIL."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core import event

from trafo.runtime.console import say

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile `function` when it is first called; load it from the cache ever after.

    numba throws a cached kernel away when the file it is written in changes, but not when a
    kernel that it calls, in another file, does. So the stamp that it compares is put over all.
    """
    dispatcher = njit(cache=True, nogil=True, no_cfunc_wrapper=True)(function)
    dispatcher._cache._cache_file._source_stamp = _stamp_of_all_sources()
    return dispatcher


def subkernel(function: Function) -> Function:
    """A function that only kernels call: compiled into them, and cached with them.

    Without the wrapper that Python would need, it compiles in about half the time.
    """
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


class _Announcer(event.Listener):  # type: ignore[misc]
    """Says why it takes a while when our kernels are not in the cache."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, compilation: Any) -> None:
        module = compilation.data["dispatcher"].py_func.__module__
        if not self._said and module.startswith("trafo."):
            self._said = True
            say("compiling kernels for this machine (only once, about ten seconds)")

    def on_end(self, compilation: Any) -> None:
        pass


event.register("numba:compile", _Announcer())


@cache
def _stamp_of_all_sources() -> tuple[tuple[str, int, int], ...]:
    facts = ((path.name, path.stat()) for path in Path(__file__).parent.glob("*.py"))
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in facts))
