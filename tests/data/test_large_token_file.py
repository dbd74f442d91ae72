"""A token file of a gigabyte is opened at once and stays on disk."""

import subprocess
import sys
from pathlib import Path

from trafo.tokenizer.token_file import Manifest, documents_path, write_token_manifest

IDS = 500_000_000

# In a process of its own: its peak of memory is that of nothing else.
PROGRAM = """
import sys
import torch
from trafo.data.windows import WindowSampler
from trafo.runtime.machine import peak_memory
from trafo.tokenizer.token_file import TokenFile
WindowSampler(torch.arange(100).numpy(), 2, 8).batch(0)  # what any use takes
before = peak_memory()
ids = TokenFile.open(sys.argv[1], "0" * 64).ids
sampler = WindowSampler(ids[: len(ids) * 9 // 10], 8, 256)
for step in range(20):
    sampler.batch(step)
print(peak_memory() - before)
"""


def test_a_gigabyte_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.tokens"
    with path.open("wb") as file:
        file.truncate(2 * IDS)  # a hole: it takes no room on disk
    documents_path(path).write_bytes(b"")
    write_token_manifest(
        path,
        Manifest(
            tokenizer_hash="0" * 64,
            vocab_size=1000,
            dtype="uint16",
            num_tokens=IDS,
            num_bytes=IDS,
            num_documents=0,
            checksum=0,
            documents_checksum=0,
        ),
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], check=True, capture_output=True, text=True
    )
    # 160 windows touch a page or two each. Whatever is read of a map counts as memory, so this also
    # says that nothing else was read.
    assert int(done.stdout) < 20e6
