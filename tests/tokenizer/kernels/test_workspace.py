"""Arrays handed over by address: each must arrive under its own name, whatever the order."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import trafo
from trafo.runtime.kernels import kernel
from trafo.tokenizer import Tokenizer
from trafo.tokenizer.kernels.arrays import Bytes, Int64s, Uint32s
from trafo.tokenizer.kernels.workspace import Workspace, unpacker

TEXT = "low lower newest Größe 猫 can't 12345 low lower"
PROGRAM = f"""
import numpy as np, pathlib, trafo
from trafo.tokenizer.encoding import Encoder, Merges
from trafo.tokenizer.words import NO_SPECIALS
print(pathlib.Path(trafo.__file__).parent)
merges = Merges.from_ids({{i: i for i in range(256)}}, [(108, 111, 256), (256, 119, 257)])
encoder = Encoder("gpt2", merges, [])
data = np.frombuffer({TEXT!r}.encode(), np.uint8)
print(encoder.buffer[: encoder.encode(data, 0, len(data), NO_SPECIALS, encoder.buffer)].tolist())
"""


class Table(NamedTuple):
    small: Bytes
    large: Int64s
    middle: Uint32s


unpack = unpacker(Table)


@kernel
def sums(handles):
    arrays = unpack(handles)
    arrays.large[0] = arrays.small.sum() + 1000 * arrays.middle.sum()
    return arrays.small.size, arrays.large.size, arrays.middle.size


def test_arrays_arrive_by_name():
    workspace = Workspace(Table)
    workspace["large"] = np.zeros(5, np.int64)
    workspace["middle"] = np.full(3, 7, np.uint32)
    workspace["small"] = np.full(4, 200, np.uint8)
    assert sums(workspace.handles) == (4, 5, 3)
    assert workspace["large"].tolist() == [4 * 200 + 1000 * 3 * 7, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "array", [np.zeros(4, np.int8), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]]
)
def test_an_array_of_another_type_is_refused(array):
    with pytest.raises(TypeError, match="small must be a flat array of uint8"):
        Workspace(Table)["small"] = array


def test_the_order_of_the_encoders_table_does_not_matter(tmp_path):
    """Shuffle its lines in a copy of the source: the ids stay the same."""
    tree = tmp_path / "trafo"
    shutil.copytree(
        Path(trafo.__file__).parent, tree, ignore=shutil.ignore_patterns("__pycache__", "page")
    )
    path = tree / "tokenizer" / "kernels" / "encode.py"
    head, table, rest = _around_table(path.read_text())
    lines = table.splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    assert "".join(lines) != table
    path.write_text(head + "".join(lines) + rest)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
            "NUMBA_OPT": "0",  # compiles faster
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    folder, ids = ran.stdout.splitlines()
    assert Path(folder) == tree
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo", 257: b"low"}
    ours = Tokenizer(vocab, [(b"l", b"o"), (b"lo", b"w")])
    assert ids == str(ours.encode(TEXT))


def _around_table(source: str) -> tuple[str, str, str]:
    start = source.index("    slots: Slots", source.index("class EncoderArrays"))
    stop = source.index("\n\n", start) + 1
    return source[:start], source[start:stop], source[stop:]
