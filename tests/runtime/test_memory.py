"""The peak follows what was touched and never falls."""

import subprocess
import sys

import pytest

from trafo.runtime import memory

# In a process of its own: one that has freed memory before may use that again, unnoticed.
TOUCH_A_BLOCK = """
import numpy as np
from trafo.runtime.memory import peak_memory

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


def test_both_ways_of_asking_agree(monkeypatch, tmp_path):
    from_proc = memory.peak_memory()
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    assert memory.peak_memory() == pytest.approx(from_proc, rel=0.2)
