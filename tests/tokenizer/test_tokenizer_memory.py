"""`encode_iterable` in a process that may not take another megabyte of address space.

The tokenizer is prepared first; then the limit is set and the whole text is encoded inside it.
"""

import hashlib
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from trafo.tokenizer.reference import encode_reference, train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

if not Path("/proc/self/status").exists():
    pytest.skip("the size of the address space is read from /proc", allow_module_level=True)

from tests.shared import shared

END = "<|endoftext|>"
SIZE = 5_000_000

PROGRAM = """
import hashlib, resource, sys
from array import array
from trafo.tokenizer.tokenizer import Tokenizer

folder, path, way = sys.argv[1:]
tokenizer = Tokenizer.load(folder, ["<|endoftext|>"]).prepare()
text = "" if way == "lines" else open(path, encoding="utf-8", newline="").read()
file = open(path, encoding="utf-8", newline="")
digest, ids = hashlib.sha256(), array("I", [0] * 1024)

status = open("/proc/self/status").read()
size = int(status.split("VmSize:")[1].split()[0]) * 1024
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (size + 1_000_000, hard))
try:
    bytearray(200_000_000)  # so much cannot come from what was freed before
except MemoryError:
    pass
else:
    sys.exit("the limit does not hold")

count = 0
for i in tokenizer.encode_iterable(file if way == "lines" else (t for t in [text])):
    ids[count % 1024] = i
    count += 1
    if count % 1024 == 0:
        digest.update(ids)
digest.update(ids[: count % 1024])
print(count, digest.hexdigest())
"""


def encoded_within_limits(folder: Path, path: Path, way: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(path), way],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def summary(ids: list[int]) -> str:
    return f"{len(ids)} {hashlib.sha256(array('I', ids)).hexdigest()}"


def test_preparing_a_tokenizer_loads_every_kernel() -> None:
    """One that is loaded later takes memory just when there is none."""
    program = """
from trafo.tokenizer.tokenizer import Tokenizer
from numba.core.dispatcher import Dispatcher
import gc
import sys

vocab = {i: bytes([i]) for i in range(256)}
tokenizer = Tokenizer(vocab, [], sys.argv[2:], pattern=sys.argv[1]).prepare()
kernels = [thing for thing in gc.get_objects() if isinstance(thing, Dispatcher)]
before = [len(kernel.overloads) for kernel in kernels]
for text in ("a b", "<s>" * 2000, "word " * 2000, "日本!" * 3000, "<s>!\\n" * 3000, "a" * 20_000):
    for special in ("allow", "ignore"):
        list(tokenizer.encode_iterable([text], special))
print([
    kernel.py_func.__name__
    for kernel, count in zip(kernels, before)
    if len(kernel.overloads) > count
])
"""
    for arguments in (["gpt2"], ["gpt4o", "<s>"]):
        run = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == "[]"


WAYS = pytest.mark.parametrize("way", ["lines", "one string"])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A small tokenizer, a text of 5 MB and what its ids are by the reference."""
    folder = tmp_path_factory.mktemp("tokenizer")
    training = "She'll sell 1234 sea-shells, y'all! Größe über 日本語 — don't.\n" * 3
    vocab, merges = train_bpe_reference(training, 350, [END])
    Tokenizer(vocab, merges, [END]).save(folder)
    lines = [f"Number {n}: {n * n} sea-shells, über 日本語! {END} y'all\n" for n in range(3000)]
    # A line begins with a letter and ends with one newline, so no word crosses lines.
    ids_of_line = [encode_reference(line, vocab, merges, [END]) for line in lines]
    times = SIZE // sum(len(line.encode()) for line in lines) + 1
    path = folder / "text.txt"
    path.write_bytes("".join(lines * times).encode())
    assert path.stat().st_size >= SIZE
    return folder, path, summary([i for ids in ids_of_line * times for i in ids])


@WAYS
def test_five_megabytes(small: tuple[Path, Path, str], way: str) -> None:
    folder, path, expected = small
    assert encoded_within_limits(folder, path, way) == expected


@WAYS
def test_stories_with_gpt2s_vocabulary(tmp_path: Path, way: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    stories = shared("text/tinystories.txt")
    ours = Tokenizer.from_files(shared("gpt2/vocab.json"), shared("gpt2/merges.txt"), [END])
    ours.save(tmp_path / "tokenizer")
    ranks = {token: i for i, token in ours.vocab.items() if token != END.encode()}
    theirs = tiktoken.Encoding(
        "gpt2",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={END: 50256},
    )
    text = stories.read_bytes().decode()
    expected = summary(theirs.encode(text, allowed_special="all"))
    assert encoded_within_limits(tmp_path / "tokenizer", stories, way) == expected
