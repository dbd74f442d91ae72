"""Memory of the process and the machine, and the folder for caches."""

import subprocess
import sys

import psutil

from trafo.runtime import machine

# In a process of its own: one that has freed memory before may use that again, unnoticed.
TOUCH_A_BLOCK = """
import numpy as np
from trafo.runtime.machine import peak_memory

before = peak_memory()
block = np.ones(64 * 2**20, dtype=np.uint8)
during = peak_memory()
del block
print(before, during, peak_memory())
"""


def test_the_peak_rises_with_memory_in_use_and_stays():
    done = subprocess.run(
        [sys.executable, "-c", TOUCH_A_BLOCK], capture_output=True, text=True, check=True
    )
    before, during, after = map(int, done.stdout.split())
    assert 60 * 2**20 <= during - before <= 80 * 2**20
    # The kernel keeps its counters per CPU: they lag by some pages, more on more CPUs.
    assert after >= during - 16 * 2**20


def test_the_peak_agrees_with_what_the_process_holds():
    held = psutil.Process().memory_info().rss
    assert held * 0.8 <= machine.peak_memory() < machine.machine_memory()


def test_memory_of_the_machine():
    assert 0 < machine.available_memory() <= psutil.virtual_memory().total
    assert machine.machine_memory() <= psutil.virtual_memory().total


def test_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAFO_CACHE", str(tmp_path / "mine"))
    assert machine.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("TRAFO_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert machine.cache_folder() == tmp_path / ".cache" / "trafo"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert machine.cache_folder() == tmp_path / "caches" / "trafo"
    (tmp_path / ".cache" / "trafo").mkdir(parents=True)  # of an earlier version
    assert machine.cache_folder() == tmp_path / ".cache" / "trafo"
