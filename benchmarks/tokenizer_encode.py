"""Encoding with GPT-2's vocabulary: one long string, files to a token file, one sentence."""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gigatoken
import numpy as np
import tiktoken
import tokenizers

import texts
from timing import compare, silence
from trafo.tokenizer import TokenFile, Tokenizer, encode_files
from trafo.tokenizer.formats.huggingface import write_huggingface
from trafo.tokenizer.patterns import pattern_regex

SPECIAL = "<|endoftext|>"
SENTENCE = "The quick brown fox jumps over the lazy dog, and then it runs away from the angry bear."


def gpt2() -> Tokenizer:
    """GPT-2's own tokenizer if its files are there, else one of the same size and kind."""
    files = texts.SHARED / "gpt2"
    if files.exists():
        return Tokenizer.from_files(files / "vocab.json", files / "merges.txt", [SPECIAL])
    from trafo.tokenizer.train import train_tokenizer

    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(texts.text_bytes(None, 100))
        print("GPT-2's files are not there: measuring with a vocabulary trained here")
        return Tokenizer.from_spec(train_tokenizer(file.name, 50_257, [SPECIAL]).spec)


class Peers:
    """The same tokenizer in other libraries."""

    def __init__(self, ours: Tokenizer, folder: Path) -> None:
        ranks = {t: i for i, t in ours.vocab.items() if i not in ours.special_tokens.values()}
        self.tiktoken = tiktoken.Encoding(
            "gpt2-here",
            pat_str=pattern_regex("gpt2"),
            mergeable_ranks=ranks,
            special_tokens=ours.special_tokens,
        )
        path = folder / "tokenizer.json"
        write_huggingface(ours.spec, path)
        self.hugging_face = tokenizers.Tokenizer.from_file(str(path))
        self.gigatoken = gigatoken.Tokenizer(path)


def long_string(ours: Tokenizer, peers: Peers, text: bytes, rounds: int) -> None:
    string = text.decode()
    documents = string.split(SPECIAL)
    source = gigatoken.BytesSource(text, separator=SPECIAL.encode())
    size = len(text) / 1e6
    what = f"encode_array, one string of {size:.0f} MB, GPT-2's vocabulary, warm"
    fast = {
        "trafo": lambda: ours.encode_array(string),
        "gigatoken encode": lambda: peers.gigatoken.encode(string),
        "gigatoken encode_batch": lambda: peers.gigatoken.encode_batch(source),
    }
    slow = {
        "trafo": lambda: ours.encode_array(string),
        "tiktoken encode_ordinary": lambda: peers.tiktoken.encode_ordinary(string),
        "Hugging Face encode_batch_fast": lambda: peers.hugging_face.encode_batch_fast(documents),
    }
    compare(what, fast, amount=size, unit="MB", rounds=rounds)
    compare(what, slow, amount=size, unit="MB", rounds=max(1, rounds // 2))


def to_file(ours: Tokenizer, peers: Peers, text: bytes, rounds: int, folder: Path) -> None:
    path = folder / "text.txt"
    path.write_bytes(text)
    numbers = iter(range(1_000_000))
    size = len(text) / 1e6

    def trafo() -> TokenFile:
        out = folder / f"out-{next(numbers)}"
        out.mkdir()
        return encode_files(ours, path, out / "text.tokens")

    def giga() -> Any:
        source = gigatoken.TextFileSource([path], separator=SPECIAL.encode())
        return peers.gigatoken.encode_files(source)

    with silence():
        token_file, ids = trafo(), giga()
    check_ids(token_file, ids, ours.special_tokens[SPECIAL])
    del ids
    compare(
        f"file of {size:.0f} MB to token file on disk; gigatoken keeps the ids in memory",
        {"trafo tokenizer encode": trafo, "gigatoken encode_files": giga},
        amount=size,
        unit="MB",
        rounds=rounds,
    )
    for out in folder.glob("out-*"):
        shutil.rmtree(out)


def check_ids(ours: TokenFile, theirs: Any, special: int) -> None:
    """The same work: equal ids, though gigatoken drops the special tokens that it splits at."""
    expected = np.concatenate([np.asarray(document) for document in theirs])
    ordinary = ours.ids[ours.ids != special]
    print(f"ids: {len(ours.ids):,} on disk as {ours.ids.dtype}; gigatoken's are {expected.dtype}")
    if not np.array_equal(ordinary, expected):
        sys.exit("the ids differ: there is nothing to compare")


def short_string(ours: Tokenizer, peers: Peers, rounds: int) -> None:
    def often(function):  # type: ignore[no-untyped-def]
        def run() -> None:
            for _ in range(20_000):
                function(SENTENCE)

        return run

    everyone = {
        "trafo encode": often(ours.encode),
        "tiktoken encode": often(peers.tiktoken.encode),
        "tiktoken encode_ordinary": often(peers.tiktoken.encode_ordinary),
        "gigatoken encode": often(peers.gigatoken.encode),
    }
    what = f"one sentence of {len(SENTENCE)} bytes"
    compare(what, everyone, amount=20.0, unit="thousand", rounds=rounds)


def measure(text: bytes, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        ours = gpt2()
        print(f"tokenizer ready in {time.perf_counter() - start:.1f} s")
        peers = Peers(ours, folder)
        some = text[: text.rfind(b" ", 0, 40_000_000)]
        long_string(ours, peers, some, rounds)
        to_file(ours, peers, text, rounds, folder)
        short_string(ours, peers, rounds)


if __name__ == "__main__":
    options = texts.arguments(__doc__ or "", megabytes=108)
    measure(texts.text_bytes(options.text, options.megabytes), options.rounds)
