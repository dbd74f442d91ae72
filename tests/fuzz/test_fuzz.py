"""A second of the fuzzer here, a minute of it in `make test-all`; more with tests/fuzz/fuzz.py."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from trafo.errors import InputError

FUZZ = [sys.executable, str(Path(__file__).with_name("fuzz.py"))]


def fuzz(out: Path, *flags: object) -> None:
    command = [*FUZZ, "--out", str(out), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 findings" in done.stdout.splitlines()[-1]


@pytest.fixture
def fuzzer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, in this process."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return import_module("fuzz")


@pytest.mark.parametrize("subject", ["yaml", "pairs"])
def test_damaged_files_are_refused_in_words(
    fuzzer: ModuleType, tmp_path: Path, subject: str
) -> None:
    options = fuzzer.read_options(["--out", str(tmp_path), "--rounds", "30"])
    assert list(fuzzer.rounds(options, [subject])) == []


@pytest.mark.slow
def test_damaged_files_of_every_kind(tmp_path: Path) -> None:
    fuzz(tmp_path, "--seconds", 60, "--seed", 1)


@pytest.mark.parametrize(
    ("error", "is_finding"),
    [
        (KeyError("x"), True),
        (OSError("no file is named"), True),
        (RecursionError(), True),
        (InputError("damaged"), False),
        (FileNotFoundError(2, "no such file", "a.txt"), False),
        (MemoryError(), False),
    ],
)
def test_what_counts_as_a_finding(fuzzer, monkeypatch, tmp_path, error, is_finding) -> None:
    """What the command line would not turn into one line."""

    def read(_: Path) -> None:
        raise error

    monkeypatch.setitem(fuzzer.SUBJECTS, "yaml", fuzzer.SUBJECTS["yaml"].__class__(list, read))
    assert (fuzzer._problem("yaml", tmp_path, 1000.0) is not None) == is_finding
