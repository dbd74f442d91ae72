"""`max_memory` holds, with the address space limited by the system, and changes no merge."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from trafo.errors import InputError
from trafo.tokenizer.train import train_bpe

# Kernels are loaded and threads have had their stacks before the space is measured. Then
# each run has a process of its own, forked, that may take `max_memory` and the slack, no more.
SCRIPT = """
import io, json, os, resource, sys
from pathlib import Path
import psutil
from trafo.cli.main import main
from trafo.runtime.progress import set_quiet
from trafo.tokenizer import train

folder, text, vocab_size, runs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
set_quiet(True)
warm = folder / "warm.txt"
warm.write_text("some words to load all kernels, and some more words " * 1000)
train.train_bpe(warm, 300, num_workers=2)
least, train.LEAST_MEMORY = train.LEAST_MEMORY, 1 << 18
try:
    train.train_bpe(warm, 300, num_workers=1, max_memory=1 << 18)  # by all ways of merging
finally:
    train.LEAST_MEMORY = least

def command(text, name, *flags):
    out = folder / name
    sizes = ["--vocab-size", str(vocab_size), "--out", str(out)]
    code = main(["--quiet", "tokenizer", "train", str(text), *sizes, *flags])
    return (out / "merges.txt").read_text() if code == 0 else sys.stderr.getvalue()

stdout, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
command(warm, "warm", "--max-memory", "100MB")

def in_child(limit, flags):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if limit:
                mapped = psutil.Process().memory_info().vms
                resource.setrlimit(resource.RLIMIT_AS, (mapped + limit, -1))
            result = command(text, str(os.getpid()), *flags)
        except BaseException as error:
            result = type(error).__name__ + ": " + str(error)
        with os.fdopen(writer, "w") as file:
            file.write(result)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        result = file.read()
    os.waitpid(child, 0)
    return result

stdout.write(json.dumps([in_child(limit, flags) for limit, flags in json.loads(runs)]))
stdout.flush()  # explicitly: it is no longer sys.stdout
"""

SLACK = 4 << 20

# So that what is freed goes back to the system, and what threads put aside does not hide anything.
STRICT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


def results(
    folder: Path, text: Path, vocab_size: int, runs: Sequence[tuple[int, Sequence[str]]]
) -> list[str]:
    """For each (limit on the space added, flags): the merges, or what was said on stderr."""
    arguments = [str(folder), str(text), str(vocab_size), json.dumps(runs)]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **STRICT},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    outcome: list[str] = json.loads(run.stdout)
    return outcome


def write_words(path: Path, number: int) -> Path:
    """Distinct words, each a few times."""
    rng = random.Random(0)
    letters = "eeeeettttaaaooinnshrdlucmfwypvbgkqjxz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 12))) for _ in range(number)]
    path.write_text(" ".join(words + rng.sample(words, number)))
    return path


def write_clauses(path: Path, number: int) -> Path:
    """As in Chinese or Japanese: between two commas all is one word, nearly always a new one."""
    rng = random.Random(0)
    letters = [chr(0x4E00 + int(rng.expovariate(0.01)) % 2000) for _ in range(5000)]
    clauses = ["".join(rng.choices(letters, k=rng.randint(4, 20))) for _ in range(number)]
    path.write_text("，".join(clauses), encoding="utf-8")
    return path


def assert_limit_holds(text: Path, vocab_size: int, limit: int, flags: Sequence[str] = ()) -> None:
    """The command keeps to the limit with the same merges, and without the flag it does not."""
    limited = [*flags, "--max-memory", str(limit)]
    runs = [(0, flags), (limit + SLACK, limited), (limit + SLACK, flags)]
    free, held, without = results(text.parent, text, vocab_size, runs)
    assert held == free
    assert free.startswith("#version")
    assert "memory" in without  # it does take more


@pytest.mark.parametrize("num_workers", ["2", pytest.param("1", marks=pytest.mark.slow)])
def test_the_limit_holds(tmp_path: Path, num_workers: str) -> None:
    text = write_words(tmp_path / "text.txt", 200_000)
    assert_limit_holds(text, 300, 32 << 20, ["--workers", num_workers])


@pytest.mark.parametrize(
    ("megabytes", "number"),
    [(20, 25_000), *(pytest.param(mb, 300_000, marks=pytest.mark.slow) for mb in (24, 48, 100))],
)
def test_the_limit_holds_for_text_without_spaces(
    tmp_path: Path, megabytes: int, number: int
) -> None:
    text = write_clauses(tmp_path / "text.txt", number)
    assert_limit_holds(text, 1000, megabytes << 20)


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [16, 24, 48, 96, 200])
def test_the_limit_holds_for_many_words(tmp_path: Path, megabytes: int) -> None:
    assert_limit_holds(write_words(tmp_path / "text.txt", 600_000), 500, megabytes << 20)


def test_too_little_is_refused_at_once(tmp_path: Path) -> None:
    text = write_words(tmp_path / "text.txt", 10)
    with pytest.raises(InputError, match=r"max_memory is 1\.05 MB; it must be at least 16\.8 MB"):
        train_bpe(text, 300, max_memory=1 << 20)
