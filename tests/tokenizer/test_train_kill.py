"""Training killed at any instant and run again gives the same merges, and resumes."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tokenizer.killing import drive_program

from trafo.tokenizer import count_store as count_files
from trafo.tokenizer.chunks import Chunker, PlannedChunk, Position
from trafo.tokenizer.count_store import CountStore
from trafo.tokenizer.reference import train_bpe_reference
from trafo.tokenizer.train import train_bpe

END = "<|endoftext|>"
SLOW = pytest.mark.slow

# One process that has everything loaded forks one child for each run: so a run begins at once.
DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
from tests.tokenizer.killing import die_at, in_child, status_of
from trafo.tokenizer import count_store
from trafo.tokenizer import count_store as count_files
from trafo.tokenizer.train import train_bpe

mode, folder = sys.argv[1], Path(sys.argv[2])
options = json.loads(sys.argv[3])
count_files.SECONDS_BETWEEN_SAVES = 0.0 if mode == "steps" else 0.02
warm = folder / "warm.txt"
warm.write_text("some words to load all kernels")
train_bpe(warm, 260, work_dir=folder / "warm")
train_bpe(warm, 260, max_memory=1 << 26)

def note_start(path):
    # Write down where reading begins.
    run = count_files.LocalCounter.run
    def noting(counter, *args):
        if counter.position != counter._chunker.end:
            path.with_suffix(".new").write_text(str(counter.num_bytes))
            os.rename(path.with_suffix(".new"), path)
        return run(counter, *args)
    count_files.LocalCounter.run = noting

def train():
    note_start(folder / "start")
    _, merges = train_bpe(
        folder / "in", 400, ["<|endoftext|>"], work_dir=folder / "work", **options
    )
    (folder / "merges").write_text(json.dumps([[a.hex(), b.hex()] for a, b in merges]))

def training(prepare=lambda: None):
    (folder / "start").write_text("-1")  # if nothing at all is read
    return in_child(prepare, train)

def start():
    return int((folder / "start").read_text())

def clean():
    (folder / "merges").unlink(missing_ok=True)
    for path in (folder / "work").glob("*"):
        path.unlink()

CHANGES_THE_DISK = (
    (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir"),
    (count_store.CountStore, "_write_run"), (count_store.CountStore, "join_runs"),
)

results = []
if mode == "steps":
    step = 1
    while True:
        clean()
        status = status_of(training(die_at(step, CHANGES_THE_DISK)))
        if status == 0:
            break
        assert status == -signal.SIGKILL, status
        assert status_of(training()) == 0
        results.append((start(), (folder / "merges").read_text()))
        step += int(sys.argv[4])
else:
    rng = random.Random(int(sys.argv[4]))
    began = time.monotonic()
    assert status_of(training()) == 0
    whole = time.monotonic() - began
    clean()
    for _ in range(5):
        child = training()
        time.sleep(rng.uniform(0.1, 0.5) * whole)
        os.kill(child, signal.SIGKILL)
        results.append((start(), "" if status_of(child) else (folder / "merges").read_text()))
    assert status_of(training()) == 0
    results.append((start(), (folder / "merges").read_text()))
print(json.dumps(results))
"""


def drive(mode: str, folder: Path, number: int, **options: Any) -> list[tuple[int, list[Any]]]:
    """Run the driver; for each run: where reading began, and the merges if it came to an end."""
    results = drive_program(DRIVER, mode, str(folder), json.dumps(options), str(number))
    return [(start, json.loads(merges) if merges else []) for start, merges in results]


def text(num_words: int, seed: int = 5) -> str:
    rng = random.Random(seed)
    words = ["".join(rng.choices("etaoinsé中", k=rng.randint(1, 9))) for _ in range(2000)]
    return " ".join(rng.choices([*words, END, "\n"], k=num_words))


def write_inputs(folder: Path, num_words: int) -> list[list[str]]:
    """Two files; the merges by the plain algorithm."""
    (folder / "in").mkdir()
    texts = [text(num_words, seed) for seed in (1, 2)]
    for i, each in enumerate(texts):
        (folder / "in" / f"{i}.txt").write_text(each)
    merges = train_bpe_reference(END.join(texts), 400, [END])[1]
    return [[a.hex(), b.hex()] for a, b in merges]


@pytest.mark.parametrize(("num_workers", "every"), [(2, 5), pytest.param(1, 1, marks=SLOW)])
def test_killed_at_steps_that_change_the_disk(tmp_path: Path, num_workers: int, every: int) -> None:
    expected = write_inputs(tmp_path, 500)
    results = drive("steps", tmp_path, every, chunk_size=3000, num_workers=num_workers)
    assert len(results) > 4
    assert all(merges == expected for _, merges in results)
    starts = [start for start, _ in results]
    assert any(start > 0 for start in starts)  # went on in the middle
    assert -1 in starts  # killed when all was counted


@pytest.mark.parametrize("options", [{}, {"max_memory": 24 << 20}], ids=["plain", "max_memory"])
def test_killed_at_random_instants(tmp_path: Path, options: dict[str, int]) -> None:
    expected = write_inputs(tmp_path, 100_000)
    *kills, (last_start, last_merges) = drive(
        "random", tmp_path, 3, chunk_size=5000, num_workers=2, **options
    )
    assert last_merges == expected
    assert all(merges in ([], expected) for _, merges in kills)
    before = [start for start, _ in kills]
    assert not kills[0][1]  # really killed
    # None lost what an earlier one had saved; -1: there was nothing left to read.
    starts = [float("inf") if start == -1 else start for start in [*before, last_start]]
    assert starts == sorted(starts)


class InterruptedHereError(Exception):
    pass


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("after", [1, 8])
def test_an_error_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int, after: int
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text(3000))
    monkeypatch.setattr(count_files, "SECONDS_BETWEEN_SAVES", 0.0)
    plan = Chunker.plan

    def interrupted(chunker: Chunker, start: Position) -> Iterator[PlannedChunk]:
        for i, chunk in enumerate(plan(chunker, start)):
            if i == after:
                raise InterruptedHereError
            yield chunk

    options = {"work_dir": tmp_path / "work", "chunk_size": 2000, "num_workers": num_workers}
    monkeypatch.setattr(Chunker, "plan", interrupted)
    with pytest.raises(InterruptedHereError):
        train_bpe(path, 320, [END], **options)

    starts: list[Position] = []

    def noting(chunker: Chunker, start: Position) -> Iterator[PlannedChunk]:
        starts.append(start)
        return plan(chunker, start)

    monkeypatch.setattr(Chunker, "plan", noting)
    # Another chunk size and number of workers may go on with it.
    options |= {"chunk_size": 1234, "num_workers": 3 - num_workers}
    result = train_bpe(path, 320, [END], **options)
    assert result == train_bpe_reference(path.read_text(), 320, [END])
    assert starts[0].offset > 1000 * (after - 1)
    train_bpe(path, 330, [END], **options)
    assert len(starts) == 1  # all was counted: nothing is planned again


def test_saving_takes_what_all_threads_have_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every save, the counts are those of the text up to the saved position, no more."""
    path = tmp_path / "a.txt"
    path.write_text(text(2000).replace(END, ""))
    monkeypatch.setattr(count_files, "SECONDS_BETWEEN_SAVES", 0.0)
    data = path.read_bytes()
    seen: list[int] = []
    add_run = CountStore.add_run

    def checked(store: CountStore, counters: Any, position: Position, num_bytes: int) -> None:
        add_run(store, counters, position, num_bytes)
        size = sum(
            int((np.diff(words.ends, prepend=0) * words.counts).sum())
            for words in store.partitions()
        )
        assert size == num_bytes == (position.offset if position.file == 0 else len(data))
        seen.append(size)

    monkeypatch.setattr(CountStore, "add_run", checked)
    train_bpe(path, 300, work_dir=tmp_path / "work", chunk_size=2000, num_workers=3)
    assert seen[-1] == len(data)
    assert len(seen) > 5
