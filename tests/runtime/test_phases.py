"""Seconds add up under their names, in order, also after an error."""

import pytest

from trafo.runtime import phases
from trafo.runtime.phases import PhaseTimer


@pytest.fixture
def ticks(monkeypatch):
    """Each look at the clock is one second later."""
    seconds = iter(range(100))
    monkeypatch.setattr(phases, "perf_counter", lambda: float(next(seconds)))


@pytest.mark.usefixtures("ticks")
def test_phases_add_up_in_order_of_appearance():
    timer = PhaseTimer()
    for name in ("reading", "merging", "reading"):
        with timer.phase(name):
            pass
    assert list(timer.seconds.items()) == [("reading", 2.0), ("merging", 1.0)]
    assert timer.total == 3.0
    assert timer.summary() == "reading 2.0 s, merging 1.0 s"


@pytest.mark.usefixtures("ticks")
def test_a_failed_phase_is_timed_too():
    timer = PhaseTimer()
    with pytest.raises(RuntimeError), timer.phase("reading"):
        raise RuntimeError
    assert timer.seconds == {"reading": 1.0}
