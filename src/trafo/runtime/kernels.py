"""How kernels are made: compiled by numba on first use, kept on disk, run without the GIL.

A `kernel` is called by Python. A `subkernel` is called by kernels only and becomes part
of them: without the wrapper that Python would need, it compiles in about half the time.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numba
from numba.core import event

from trafo.runtime.console import say
from trafo.runtime.threads import in_short_thread

Function = TypeVar("Function", bound=Callable[..., Any])

_FLOATS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
}
"""Options for arithmetic in floats: sums in any order, fused multiply-add, and infinity when
dividing by zero. Without them loops do not run in vector registers. NaN stays NaN."""

# Not every threading layer of numba is thread-safe.
_ONE_AT_A_TIME = Lock()


def kernel(function: Function, **options: Any) -> Function:
    """Compile `function` when it is first called, and load it from the cache from then on.

    numba compiles a cached kernel again when its own file changes, but not when a file that it
    imports from does. So the stamp that numba compares covers the whole folder, and the folders of
    the same package that its file imports functions from.
    """
    made: Any = numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
    # Private: numba has no public way to say what a cached kernel depends on, other than another
    # cache folder for each state of the sources. tests/runtime/test_kernels.py checks the effect.
    made._cache._cache_file._source_stamp = _stamp(_folders(function))
    return made  # type: ignore[no-any-return]


def subkernel(function: Function, **options: Any) -> Function:
    """Compile a function that only kernels call into them, to be cached with them."""
    made: Function = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(function)
    return made


def float_kernel(function: Function) -> Function:
    """Compile a kernel that computes with floats."""
    return kernel(function, **_FLOATS)


def parallel_kernel(function: Function) -> Function:
    """Compile a kernel that computes with floats, in several threads."""
    return kernel(function, parallel=True, **_FLOATS)


def float_subkernel(function: Function) -> Function:
    """Compile a subkernel that computes with floats."""
    return subkernel(function, **_FLOATS)


@contextmanager
def kernel_threads(number: int) -> Iterator[None]:
    """Give parallel kernels in the block `number` threads, while no other thread runs any."""
    with _ONE_AT_A_TIME:
        launch_threads()
        numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))
        yield


def _folders(function: Callable[..., Any]) -> frozenset[Path]:
    """Its own, and those that its file imports functions from, as trafo.generate is one package."""
    package = ".".join(function.__module__.split(".")[:2])
    used = {getattr(value, "__module__", None) for value in function.__globals__.values()}
    modules = [name for name in used if isinstance(name, str) and name.startswith(f"{package}.")]
    files = [inspect.getfile(function), *(sys.modules[name].__file__ or "" for name in modules)]
    return frozenset(Path(file).parent for file in files)


@cache
def launch_threads() -> None:
    """Start numba's threads, before a kernel with parallel parts is loaded and does so itself.

    That sets OpenMP's number of threads to that of the cores, for the thread that asks first, and
    torch takes its own number from there. So a thread that computes nothing else asks.
    """
    in_short_thread(numba.get_num_threads)


@cache
def _stamp(folders: frozenset[Path]) -> tuple[tuple[str, int, int], ...]:
    paths = (path for folder in folders for path in folder.glob("*.py"))
    facts = ((f"{path.parent.name}/{path.name}", path.stat()) for path in paths)
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in facts))


class _CompilationNotice(event.Listener):  # type: ignore[misc]
    """Says why it takes a while when our kernels are not in the cache."""

    has_spoken = False

    def on_start(self, compilation: Any) -> None:
        module = compilation.data["dispatcher"].py_func.__module__
        if not self.has_spoken and module.startswith("trafo."):
            self.has_spoken = True
            say("compiling kernels for this machine (only once, ten to twenty seconds)")

    def on_end(self, compilation: Any) -> None:
        pass


event.register("numba:compile", _CompilationNotice())
