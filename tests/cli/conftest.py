"""The command line in this process, on the folder that a test module makes."""

import pytest

from trafo.cli.main import main


@pytest.fixture
def trafo(folder, capfdbinary):
    """Runs a verb on the module's `folder`; its exit code, output and messages."""

    def run(verb, *arguments):
        code = main([verb, str(folder), *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run
