"""`trafo serve`: flags become the settings of the service."""

from pathlib import Path

import pytest

from trafo.cli.serve import Options
from trafo.errors import TrafoError
from trafo.generate.config import EngineConfig

RUNS = (Path("run"),)


@pytest.mark.parametrize(("short", "long", "used"), [(3, None, 3), (None, 2, 2), (1, 2, 1)])
def test_threads_are_those_of_the_engine(short, long, used):
    options = Options(runs=RUNS, threads=short, engine=EngineConfig(threads=long))
    assert options.config().engine.threads == used


def test_no_threads_are_refused():
    with pytest.raises(TrafoError, match="--threads"):
        Options(runs=RUNS, threads=0)


def test_a_key_from_the_environment(monkeypatch):
    monkeypatch.setenv("TRAFO_API_KEY", "secret")
    assert Options(runs=RUNS).config().api_key == "secret"
    assert Options(runs=RUNS, api_key="other").config().api_key == "other"
