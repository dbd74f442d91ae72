"""The peak follows what was touched and never falls."""

import sys

import numpy as np
import pytest

from trafo.runtime import memory

MIB = 2**20


def test_the_peak_rises_with_memory_in_use_and_stays():
    now = memory._status_bytes("VmRSS") or 0
    block = np.ones(64 * MIB, dtype=np.uint8)
    peak = memory.peak_memory()
    assert peak >= now + 60 * MIB
    del block
    # The kernel keeps its counters per CPU, so they are off by some pages.
    assert memory.peak_memory() >= peak - MIB


def test_both_ways_of_asking_agree(monkeypatch, tmp_path):
    from_proc = memory.peak_memory()
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    assert memory.peak_memory() == pytest.approx(from_proc, rel=0.2)
    assert memory.address_space() is None


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells it in /proc")
def test_address_space_counts_what_is_mapped_but_untouched():
    before = memory.address_space()
    block = np.empty(256 * MIB, dtype=np.uint8)
    after = memory.address_space()
    assert after - before >= 250 * MIB
    del block
