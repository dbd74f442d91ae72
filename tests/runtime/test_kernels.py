"""Compiled kernels: what numba keeps on disk follows every file of their folder."""

import importlib
import os
import subprocess
import sys

import numba
import pytest

from trafo.runtime import kernels
from trafo.runtime.kernels import kernel_threads


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The kernel of a small package, imported again; `factor` is in another file."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it tells files apart by whole seconds
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "small_package" / "part"
    (folder / "other").mkdir(parents=True)
    for each in (folder.parent, folder, folder / "other"):
        (each / "__init__.py").touch()
    (folder / "times.py").write_text(
        "from small_package.part.factor import FACTOR\n"
        "from small_package.part.other.more import more\n"
        "from trafo.runtime.kernels import kernel\n\n"
        "@kernel\ndef times(x):\n    return FACTOR * more(x)\n"
    )

    def make(factor, added=0):
        (folder / "factor.py").write_text(f"FACTOR = {factor}\n")
        (folder / "other" / "more.py").write_text(
            "from trafo.runtime.kernels import subkernel\n\n"
            f"@subkernel\ndef more(x):\n    return x + {added}\n"
        )
        for name in [name for name in sys.modules if name.startswith("small_package")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        kernels._stamp.cache_clear()
        return importlib.import_module("small_package.part.times").times

    yield make
    for name in [name for name in sys.modules if name.startswith("small_package")]:
        del sys.modules[name]


def test_a_kernel_is_kept_until_a_file_beside_it_changes(made):
    first = made(3)
    assert first(5) == 15
    assert sum(first.stats.cache_misses.values()) == 1
    second = made(10)
    assert second(5) == 50
    again = kernels.kernel(second.py_func)
    assert again(5) == 50
    assert sum(again.stats.cache_hits.values()) == 1


def test_a_kernel_follows_the_functions_that_it_uses_from_another_folder(made):
    assert made(3)(5) == 15
    assert made(3, added=2)(5) == 21


def test_threads_of_kernels():
    with kernel_threads(1):
        assert numba.get_num_threads() == 1
    with kernel_threads(10_000):
        assert numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS


def test_kernels_leave_the_number_of_torch_threads_alone() -> None:
    """In a process of its own: numba starts its threads once."""
    script = """
import numba, torch
from trafo.runtime.kernels import kernel_threads
torch.set_num_threads(1)
assert torch.get_num_threads() == 1  # from now on torch asks OpenMP
with kernel_threads(2):
    assert numba.get_num_threads() == 2
assert torch.get_num_threads() == 1, torch.get_num_threads()
"""
    subprocess.run(
        [sys.executable, "-c", script], check=True, env=os.environ | {"NUMBA_NUM_THREADS": "2"}
    )
