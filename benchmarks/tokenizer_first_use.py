"""Start of Python to the first answer: the first time ever, which compiles, and afterwards.

Import, load GPT-2's vocabulary (or one of its size) from a file, encode one sentence: we and
tiktoken in turn. Then a training run, and a megabyte of text, which need the kernels.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tokenizer_encode import gpt2
from trafo.tokenizer.formats.load import save_as

SENTENCE = """
from trafo.tokenizer import Tokenizer
tokenizer = Tokenizer.load("{folder}/gpt2")
assert len(tokenizer.encode("Hello world, this is the first sentence.")) > 5
"""

MEGABYTE = (
    SENTENCE
    + """
tokenizer.encode_array("Hello world, this is a sentence. " * 30_000)
"""
)

TIKTOKEN = """
import tiktoken
from tiktoken.load import load_tiktoken_bpe
ranks = load_tiktoken_bpe("{folder}/gpt2.tiktoken")
pattern = r"'(?:[sdmt]|ll|ve|re)| ?\\p{{L}}+| ?\\p{{N}}+| ?[^\\s\\p{{L}}\\p{{N}}]+|\\s+(?!\\S)|\\s+"
encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={{}})
assert len(encoding.encode("Hello world, this is the first sentence.")) > 5
"""

TRAIN = """
import pathlib
from trafo.tokenizer.train import train_bpe
path = pathlib.Path("{folder}") / "text.txt"
path.write_text("low lower lowest " * 100)
train_bpe(path, 270, ["<|endoftext|>"])
"""

PROGRAMS = {
    "one sentence": SENTENCE,
    "one sentence, tiktoken": TIKTOKEN,
    "a megabyte": MEGABYTE,
    "train a tokenizer": TRAIN,
}


def seconds(program: str, folder: str, cache: str) -> float:
    start = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    code = program.format(folder=folder)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def measure(rounds: int = 3) -> None:
    print("\nstart of Python to result")
    with tempfile.TemporaryDirectory() as folder:
        spec = gpt2().spec
        save_as(spec, Path(folder, "gpt2"), "trafo")
        save_as(spec, Path(folder, "gpt2.tiktoken"), "tiktoken")
        caches = {what: Path(folder, f"cache-{i}") for i, what in enumerate(PROGRAMS)}
        times: dict[str, list[float]] = {what: [] for what in PROGRAMS}
        for _ in range(1 + rounds):
            for what, program in PROGRAMS.items():
                times[what].append(seconds(program, folder, str(caches[what])))
        for what, (first, *later) in times.items():
            print(f"  {what:<28}first ever {first:5.1f} s, afterwards {median(later):.2f} s")


if __name__ == "__main__":
    measure()
