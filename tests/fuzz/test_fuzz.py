"""A second of the fuzzer here, a minute of it in `make test-all`; more with tests/fuzz/fuzz.py."""

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = [sys.executable, str(Path(__file__).with_name("fuzz.py"))]


def fuzz(out: Path, *flags: object) -> None:
    command = [*FUZZ, "--out", str(out), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 findings" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("subject", ["yaml", "pairs"])
def test_damaged_files_are_refused_in_words(tmp_path: Path, subject: str) -> None:
    fuzz(tmp_path, "--subject", subject, "--rounds", 30)


@pytest.mark.slow
def test_damaged_files_of_every_kind(tmp_path: Path) -> None:
    fuzz(tmp_path, "--seconds", 60, "--seed", 1)


def test_a_finding_is_told_with_the_line_that_repeats_it(tmp_path: Path) -> None:
    """With no time to read anything, every read is too slow."""
    command = [*FUZZ, "--out", str(tmp_path), "--subject", "yaml", "--rounds", "1"]
    done = subprocess.run([*command, "--limit", "0.0001"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "FINDING yaml: " in done.stdout
    assert "--subject yaml --seed 0 --only 0" in done.stdout
    assert len(list(tmp_path.iterdir())) == 1
