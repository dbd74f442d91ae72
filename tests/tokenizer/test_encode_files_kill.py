"""Encoding killed at any instant and run again gives the same files to the byte, and resumes."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.tokenizer.killing import drive_program

from trafo.tokenizer.reference import train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"

# One process that has everything loaded forks one child for each run: so a run begins at once.
DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
from tests.tokenizer.killing import die_at, in_child, status_of
from trafo.tokenizer import encode_corpus as corpus, token_writer
from trafo.tokenizer.tokenizer import Tokenizer

mode, folder, chunk = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
token_writer.SECONDS_BETWEEN_SAVES = 0.0
corpus._CHUNK = chunk
tokenizer = Tokenizer.load(folder / "tokenizer")
tokenizer.prepare()  # once, for all children
out = folder / "out" / "corpus.tokens"
out.parent.mkdir()

def encode():
    corpus.encode_files(
        tokenizer, folder / "in", out, num_workers=2, end_of_document="<|endoftext|>"
    )

def content():
    return [(path.name, path.read_bytes()) for path in sorted(out.parent.iterdir())]

def clean():
    for path in out.parent.iterdir():
        path.unlink()

def note_start():
    # Write down where reading begins.
    enter = token_writer.TokenWriter.__enter__
    def noting(writer):
        enter(writer)
        if not writer.is_finished:
            (folder / "new").write_text(str(writer._now.num_bytes))
            os.rename(folder / "new", folder / "start")
        return writer
    token_writer.TokenWriter.__enter__ = noting

def go_on():
    (folder / "start").write_text("-1")  # if nothing at all is read
    assert status_of(in_child(note_start, encode)) == 0
    return int((folder / "start").read_text())

CHANGES_THE_DISK = (
    (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "touch"),
    (token_writer.TokenWriter, "write"), (token_writer.TokenWriter, "_rename_files"),
)

started = time.monotonic()
assert status_of(in_child(note_start, encode)) == 0
seconds = time.monotonic() - started
whole = content()
results = []
if mode == "steps":
    save = token_writer.TokenWriter._save_in_background
    def save_at_once(self):
        save(self)
        self._saving.result()
    token_writer.TokenWriter._save_in_background = save_at_once
    for step in range(1, 10_000, int(sys.argv[4])):
        clean()
        status = status_of(in_child(die_at(step, CHANGES_THE_DISK), encode))
        if status == 0:
            break
        assert status == -signal.SIGKILL, status
        final = [name for name, _ in content() if name == "corpus.tokens.json"]
        results.append((bool(final), go_on(), content() == whole))
else:
    rng = random.Random(int(sys.argv[4]))
    clean()
    for _ in range(6):
        (folder / "start").write_text("-1")  # if nothing at all is read
        child = in_child(note_start, encode)
        time.sleep(seconds * rng.uniform(0.1, 0.9))
        os.kill(child, signal.SIGKILL)
        killed = status_of(child) != 0
        results.append((killed, int((folder / "start").read_text()), None))
    results.append((False, go_on(), content() == whole))
print(json.dumps(results))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = "low lower newest widest it's 中文 😀 12 \n"
    vocab, merges = train_bpe_reference(text * 3, 290, [])
    Tokenizer(vocab, merges, [END]).save(tmp_path / "tokenizer")
    (tmp_path / "in").mkdir()
    return tmp_path


def drive(mode: str, folder: Path, chunk: int, number: int) -> list[list[Any]]:
    """Run the driver; for each kill: (a flag, where reading began afterwards, all well)."""
    return drive_program(DRIVER, mode, str(folder), str(chunk), str(number))


def write_inputs(folder: Path, size: int) -> int:
    """Plain text, an archive, and records of which the last are empty; the bytes of text."""
    rng = random.Random(2)
    words = ["low", "lower", "newest", "wide", "中文", "😀", "it's", END, "\n"]
    text = lambda: " ".join(rng.choices(words, k=size))  # noqa: E731
    texts = [text() for _ in range(3)]
    (folder / "in" / "a.txt").write_text(texts[0])
    (folder / "in" / "b.txt.gz").write_bytes(gzip.compress(texts[1].encode()))
    records = [texts[2][i : i + 40] for i in range(0, len(texts[2]), 40)]
    lines = [json.dumps({"text": record}) for record in [*records, "x" * 300, "", ""]]
    (folder / "in" / "c.jsonl").write_text("\n".join(lines))
    (folder / "in" / "d.jsonl").write_text('{"text": ""}\n{"text": ""}\n')
    return sum(len(each.encode()) for each in texts) + 300


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_steps_that_change_the_disk(folder: Path, every: int) -> None:
    num_bytes = write_inputs(folder, 16)
    results = drive("steps", folder, 150, every)
    assert len(results) > 40 // every
    assert all(is_same for _, _, is_same in results)
    starts = [start for _, start, _ in results]
    assert 0 in starts  # killed at once
    assert any(0 < start < num_bytes for start in starts)  # went on in the middle
    assert -1 in starts  # killed when only names were missing: nothing was read again
    assert all(start == -1 for is_final, start, _ in results if is_final)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_at_random_instants(folder: Path, seed: int) -> None:
    write_inputs(folder, 40_000)
    *kills, last = drive("random", folder, 500, seed)
    assert any(killed for killed, _, _ in kills)
    # None lost what an earlier one had saved; -1: there was nothing left to read.
    starts = [float("inf") if start == -1 else start for _, start, _ in kills]
    assert starts == sorted(starts)
    assert last[1] != 0  # it went on
    assert last[2]  # the same bytes
