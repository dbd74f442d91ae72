"""Messages that cannot be written do not stop the service."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")


def test_a_full_disk_is_survived():
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    program = "from trafo.serve.messages import tell; tell('a'); tell('b'); print('alive')"
    with full.open("w") as nowhere:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=nowhere, text=True
        )
    assert done.stdout == "alive\n"
