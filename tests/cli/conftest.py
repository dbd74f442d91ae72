"""The command line in this process, on the folder that a test module makes."""

import io
import sys

import pytest

from trafo.cli.main import main


@pytest.fixture
def trafo(folder, capfdbinary, monkeypatch):
    """Runs a verb on the module's `folder`, nothing on stdin; its exit code, output, messages."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))

    def run(verb, *arguments):
        code = main([verb, str(folder), *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run
