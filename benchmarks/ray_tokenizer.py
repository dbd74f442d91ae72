"""Counting and encoding on 1, 2 and 4 Ray workers against our own threads, on this machine.

The cluster and its workers are started before anything is timed; how long that takes is printed.
What limits a large cluster is measured too: planning, adding up counts, writing ids;
and the memory of the driver, for two sizes of the text.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

import texts
from tokenizer_encode import gpt2
from trafo.cluster.connect import hide_ray_warnings
from trafo.cluster.counting import counting_on
from trafo.cluster.encoding import encoding_on
from trafo.runtime.progress import set_quiet
from trafo.tokenizer import Tokenizer, encode_files, train_tokenizer
from trafo.tokenizer.chunks import START, Chunker
from trafo.tokenizer.counting import WordCounter, WordCounts, merge_counts
from trafo.tokenizer.inputs import open_inputs
from trafo.tokenizer.token_writer import TokenWriter
from trafo.tokenizer.words import SpecialFinder

# Ray gives way to everything else on a machine; threads do not, so on a busy one it would lose.
os.environ.setdefault("RAY_worker_niceness", "0")

SPECIAL = "<|endoftext|>"
VOCAB_SIZE = 300  # hardly any merges: it is counting that is compared
SECONDS_TO_SETTLE = 15  # after its start, Ray's agents take the cores themselves


def seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


class Corpus:
    """A text in a file, counted and encoded by threads or on the cluster that is connected."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.path, self.tokenizer = path, tokenizer
        self.out = path.with_name("out")

    def count(self, workers: int | None) -> None:
        """As the command does it: counts are saved, so that a killed training resumes."""
        shutil.rmtree(self.out, ignore_errors=True)
        train = partial(train_tokenizer, self.path, VOCAB_SIZE, [SPECIAL], work_dir=self.out)
        if workers:
            train(num_workers=workers)
            return
        with counting_on("ray") as backend:
            train(backend=backend)

    def encode(self, workers: int | None) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        out = self.out / "x.tokens"
        if workers:
            encode_files(self.tokenizer, self.path, out, num_workers=workers)
            return
        with encoding_on("ray") as backend:
            encode_files(self.tokenizer, self.path, out, backend=backend)


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """A Ray cluster with so many workers, and its address."""
    import ray

    with hide_ray_warnings():
        running = ray.init(
            "local",
            num_cpus=workers,
            include_dashboard=False,
            object_store_memory=1 << 30,
            log_to_driver=False,
            logging_level="ERROR",
        )
    try:
        yield running.address_info["address"]
    finally:
        with hide_ray_warnings():
            ray.shutdown()


def compare_with_threads(corpus: Corpus, workers: int, rounds: int) -> None:
    """Threads and the cluster that is connected in turn."""
    size = corpus.path.stat().st_size / 1e6
    for name, work in (("counting", corpus.count), ("encoding", corpus.encode)):
        print(f"{name}: first use of {workers} workers {seconds(work, None):.1f} s")
        work(workers)
    time.sleep(SECONDS_TO_SETTLE)
    for name, work in (("counting", corpus.count), ("encoding", corpus.encode)):
        work(None)
        ours = [(seconds(work, workers), seconds(work, None)) for _ in range(rounds)]
        ratios = [on_ray / threads for threads, on_ray in ours]
        rates = [size / statistics.median(column) for column in zip(*ours, strict=True)]
        print(
            f"{name}, {workers} workers: threads {rates[0]:.0f} MB/s, Ray {rates[1]:.0f} MB/s, "
            f"Ray takes {statistics.median(ratios):.2f} x the time "
            f"({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def driver_memory(corpus: Corpus, address: str) -> None:
    """Peak memory of the command for a third of the text and for all of it, and without Ray."""
    tokenizer = str(corpus.path.with_name("tok"))
    corpus.tokenizer.save(tokenizer)
    text = corpus.path.read_bytes()
    part = corpus.path.with_name("part.txt")
    part.write_bytes(text[: len(text) // 3])
    for path in (part, corpus.path):
        verbs = {"train": [path, "--vocab-size", VOCAB_SIZE], "encode": [tokenizer, path]}
        for verb, arguments in verbs.items():
            peaks = {}
            for where, more in (("Ray", ["--on", address]), ("threads", [])):
                out = ["--out", path.with_name(f"{verb} {path.stem} {where}")]
                peaks[where] = peak_memory(["tokenizer", verb, *arguments, *out, *more])
            print(
                f"{verb}, {path.stat().st_size / 1e6:.0f} MB: peak memory of the driver "
                f"{peaks['Ray'] / 1e6:.0f} MB, with threads {peaks['threads'] / 1e6:.0f} MB",
                flush=True,
            )


_COMMAND = """
import sys
from trafo.cli.main import main
from trafo.runtime.machine import peak_memory
code = main()
print("peak", peak_memory())
sys.exit(code)
"""


def peak_memory(arguments: list[object]) -> int:
    """Peak resident set size of a trafo command, in bytes, as it finds itself."""
    command = [sys.executable, "-c", _COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def limits(path: Path) -> None:
    """The work that one process does for all: its rates bound the cluster, whatever its size."""
    inputs = open_inputs(path)
    chunker = Chunker(inputs, "gpt2", SpecialFinder([SPECIAL]), 1 << 20)
    number = inputs.size >> 20
    took = seconds(
        lambda: [chunker.border(inputs.files[0], i << 20, 1 << 20) for i in range(number)]
    )
    print(f"planning: {number / took:,.0f} pieces/s from a local disk")
    distinct_words(chunker)
    simulate_adding()
    write_ids(path.with_name("written.tokens"))


def write_ids(path: Path, num_chunks: int = 300) -> None:
    """As the driver writes what workers encoded, a chunk of a million ids at a time."""
    ids = np.random.default_rng(0).integers(0, 50_000, 1 << 20, np.uint16)
    ends = np.array([len(ids)])

    def write() -> None:
        with TokenWriter(path, "", 50_257, {}) as writer:
            for _ in range(num_chunks):
                writer.write(ids, ends, 4 * len(ids), START)
            writer.finish()
        path.unlink()

    rate = num_chunks * ids.nbytes / seconds(write)
    print(f"writing ids with their checksum: {rate / 1e6:,.0f} MB/s")


def distinct_words(chunker: Chunker) -> None:
    """How many there are in so much text, and by Heaps' law, V = K n^b, in much more."""
    counter, read, next_line = WordCounter("gpt2"), 0, 1 << 20
    points = []
    for planned in chunker.plan():
        chunk = chunker.read(planned)
        counter.count(chunk.data, chunk.specials)
        read += len(chunk.data)
        if read >= next_line:
            totals = counter.export().totals()
            points.append((read, totals.num_distinct, totals.num_bytes + 16 * totals.num_distinct))
            next_line *= 2
    for read, words, weight in points:
        print(f"  {read / 1e6:6,.1f} MB: {words:10,} distinct words, {weight / 1e6:6.2f} MB")
    sizes, words, weights = np.log(np.array(points[-4:], float)).T
    slope, start = np.polyfit(sizes, words, 1)
    per_word = np.exp(weights[-1] - words[-1])
    for size in (256e6, 32e9, 1e12):
        predicted = np.exp(start + slope * np.log(size))
        print(
            f"  {size / 1e9:6,.1f} GB: {predicted / 1e6:8.1f} million, "
            f"{predicted * per_word / 1e6:,.0f} MB, by V = K n^{slope:.2f}"
        )


def simulate_adding(num_words: int = 1_000_000) -> None:
    """Counts of so many words, as a large piece has, half of them in every piece."""
    random = np.random.default_rng(0)

    def piece() -> WordCounts:
        common = np.char.add("word", np.arange(num_words // 2).astype(str))
        rare = np.char.add("rare", random.integers(0, 10**9, num_words // 2).astype(str))
        words = np.unique(np.concatenate([common, rare]))
        text = np.frombuffer("".join(words).encode(), np.uint8)
        ends = np.cumsum(np.char.str_len(words)).astype(np.int64)
        return WordCounts(text, ends, np.ones(len(words), np.int64))

    pieces = [piece() for _ in range(4)]
    took = seconds(lambda: merge_counts(pieces))
    num = sum(map(len, pieces))
    weight = sum(len(p.text) + 16 * len(p) for p in pieces)
    print(f"adding up: {num / took / 1e6:.1f} million words/s, {weight / took / 1e6:.0f} MB/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="the text; default: the shared books, repeated")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--distinct", type=int, default=15, help="megabytes at its beginning that are not repeated"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    set_quiet(True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "text.txt")
        text = texts.text_bytes(options.text, options.megabytes)
        file.write_bytes(text[: options.distinct * 10**6])
        limits(file)
        file.write_bytes(text)
        corpus = Corpus(file, gpt2())
        for number in options.workers:
            with cluster(number) as address:
                compare_with_threads(corpus, number, options.rounds)
                if number == max(options.workers):
                    driver_memory(corpus, address)
