"""The first use ever on a machine compiles the kernels; the next ones load them from disk."""

import os
import subprocess
import sys
import tempfile
import time

ENCODE = """
from trafo.tokenizer.tokenizer import Tokenizer
tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
assert tokenizer.decode(tokenizer.encode("Hello world")) == "Hello world"
"""

TRAIN = """
import pathlib, tempfile
from trafo.tokenizer.train import train_bpe
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "text.txt"
    path.write_text("low lower lowest " * 100)
    train_bpe(path, 270, ["<|endoftext|>"])
"""


def seconds(program: str, cache: str) -> float:
    start = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return time.perf_counter() - start


def measure() -> None:
    print("\nstart of Python to result")
    for what, program in (("train a tokenizer", TRAIN), ("encode a text", ENCODE)):
        with tempfile.TemporaryDirectory() as cache:
            first = seconds(program, cache)
            later = min(seconds(program, cache) for _ in range(3))
        print(f"  {what:<34}first ever {first:5.1f} s, afterwards {later:.1f} s")


if __name__ == "__main__":
    measure()
