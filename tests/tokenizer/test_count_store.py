"""Counts on disk: what is in the manifest counts, the rest is swept away, the sum is right."""

import json
import random
import resource
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from trafo.errors import FormatError, StorageError
from trafo.tokenizer.chunks import START, Position
from trafo.tokenizer.count_store import NUM_PARTITIONS, CountStore
from trafo.tokenizer.counting import WordCounter, WordCounts
from trafo.tokenizer.train import train_bpe
from trafo.tokenizer.words import NO_SPECIALS

KEY = {"inputs": [("a.txt", 1, 2)], "pattern": "x"}


def words(seed: int, number: int = 3000) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcä中", k=rng.choice([1, 2, 3, 9, 20]))) for _ in range(number)]


def counter_of(*texts: list[str]) -> WordCounter:
    counter = WordCounter("whitespace")
    for text in texts:
        data = np.frombuffer(" ".join(text).encode(), np.uint8)
        counter.count(data, NO_SPECIALS)
    return counter


def expected(*texts: list[str]) -> Counter[bytes]:
    """Counted by Python: the words, and the spaces between them."""
    counts = Counter(word.encode() for text in texts for word in text)
    counts[b" "] = sum(len(text) - 1 for text in texts)
    return counts


def as_dict(words: WordCounts) -> dict[bytes, int]:
    """Word -> count."""
    text = words.text.tobytes()
    spans = pairwise([0, *words.ends.tolist()])
    return {text[a:b]: count for (a, b), count in zip(spans, words.counts.tolist(), strict=True)}


def total(store: CountStore) -> Counter[bytes]:
    """All partitions, none of which may share a word with another."""
    counts: Counter[bytes] = Counter()
    partitions = [as_dict(words) for words in store.partitions()]
    assert len(partitions) == NUM_PARTITIONS
    for partition in partitions:
        assert not counts.keys() & partition.keys()
        counts.update(partition)
    return counts


def names(folder: Path) -> set[str]:
    return {path.name.split(".")[0] for path in folder.glob("run-*")}


def test_runs_of_several_counters_add_up(tmp_path: Path) -> None:
    texts = [words(seed) for seed in range(4)]
    with CountStore(tmp_path, KEY) as store:
        first = [counter_of(texts[0]), counter_of(texts[1])]
        store.add_run(first, Position(0, 10), 10)
        assert [len(counter) for counter in first] == [0, 0]
        store.add_run([counter_of(texts[2])], Position(0, 20), 20)
        assert total(store) == expected(*texts[:3])
        assert names(tmp_path) == {"run-0000", "run-0001"}
    with CountStore(tmp_path, KEY) as store:  # another process resumes
        assert (store.position, store.num_bytes) == (Position(0, 20), 20)
        store.add_run([counter_of(texts[3])], Position(1), 30)
        store.join_runs()
        counts = expected(*texts)
        assert total(store) == counts
        assert store.totals() == (len(counts), counts.total(), sum(map(len, counts)))
        assert len(names(tmp_path)) == 1
    with CountStore(tmp_path, KEY) as store:
        assert (store.position, store.num_bytes) == (Position(1), 30)
        assert total(store) == expected(*texts)


def test_words_are_spread_over_the_partitions(tmp_path: Path) -> None:
    with CountStore(tmp_path, KEY) as store:
        store.add_run([counter_of(words(0, 20_000))], Position(0, 1), 1)
        sizes = [len(words) for words in store.partitions()]
    assert min(sizes) > 0.5 * sum(sizes) / NUM_PARTITIONS
    assert max(sizes) < 2 * sum(sizes) / NUM_PARTITIONS


def test_a_run_that_is_not_in_the_manifest_is_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = words(1)
    with CountStore(tmp_path, KEY) as store:
        store.add_run([counter_of(text)], Position(0, 10), 10)
        monkeypatch.setattr(CountStore, "_write_manifest", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.add_run([counter_of(text)], Position(0, 20), 20)
        with pytest.raises(ZeroDivisionError):
            store.join_runs()
    monkeypatch.undo()
    (tmp_path / ".manifest.json.0123456789ab.tmp").write_text("half")
    with CountStore(tmp_path, KEY) as store:
        assert store.position.offset == 10
        assert total(store) == expected(text)
        assert names(tmp_path) == {"run-0000"}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "manifest", [b"", b"{", b"[]", b"\xff", b'{"key": 1}', None], ids=lambda m: str(m)[:9]
)
def test_without_a_manifest_of_ours_it_starts_again(tmp_path: Path, manifest: bytes | None) -> None:
    with CountStore(tmp_path, KEY) as store:
        store.add_run([counter_of(words(1))], Position(0, 10), 10)
    if manifest is not None:
        (tmp_path / "manifest.json").write_bytes(manifest)
    with CountStore(tmp_path, KEY if manifest is not None else KEY | {"pattern": "y"}) as store:
        assert store.position == START
        assert names(tmp_path) == set()


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    for name in ("mine.txt", "run-x.counts", "run-0001.counts.bak"):
        (tmp_path / name).write_text("mine")
    with CountStore(tmp_path, KEY):
        pass
    assert {"mine.txt", "run-x.counts", "run-0001.counts.bak"} <= {
        path.name for path in tmp_path.iterdir()
    }


@pytest.mark.parametrize("size", [0, 50, 2000])
def test_a_damaged_run(tmp_path: Path, size: int) -> None:
    with CountStore(tmp_path, KEY) as store:
        store.add_run([counter_of(words(1))], Position(0, 10), 10)
        path = tmp_path / "run-0000.counts"
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(FormatError, match=r"run-0000\.counts: is damaged; delete its folder"):
            list(store.partitions())
        path.unlink()
        with pytest.raises(StorageError, match="no such file"):
            list(store.partitions())


def test_a_run_is_on_disk_before_the_manifest_names_it(
    tmp_path: Path, disk_calls: list[tuple[str, str]]
) -> None:
    """After a power failure, whatever was synced before it is there, and nothing else may be."""
    with CountStore(tmp_path, KEY) as store:
        disk_calls.clear()
        store.add_run([counter_of(words(1))], Position(0, 10), 10)
        store.add_run([counter_of(words(2))], Position(0, 20), 20)
        store.join_runs()
    names = [
        (what, ".manifest.tmp" if name.startswith(".manifest") else name)
        for what, name in disk_calls
    ]
    for number in range(3):
        assert names[5 * number : 5 * number + 5] == [
            ("fsync", f"run-{number:04}.counts"),
            ("fsync", tmp_path.name),
            ("fsync", ".manifest.tmp"),
            ("rename", "manifest.json"),
            ("fsync", tmp_path.name),
        ]
    assert len(names) == 15


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with CountStore(tmp_path, KEY), pytest.raises(StorageError, match="another process"):
        CountStore(tmp_path, KEY)
    with CountStore(tmp_path, KEY):
        pass


# What the system may refuse


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(words(3, 60_000)))
    return path


@pytest.mark.parametrize("place", ["text.txt", "text.txt/work"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, text: Path, place: str) -> None:
    with pytest.raises(StorageError, match=place):
        train_bpe(text, 300, work_dir=tmp_path / place)


def test_files_that_may_not_grow(tmp_path: Path, text: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"file too large while writing.*run again"):
            train_bpe(text, 300, work_dir=tmp_path / "work")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert train_bpe(text, 300, work_dir=tmp_path / "work") == train_bpe(text, 300)


def test_a_full_disk(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(words(4, 15_000)))
    (small_disk / "rubbish").write_bytes(bytes(600_000))
    monkeypatch.setattr("trafo.tokenizer.count_store.SECONDS_BETWEEN_SAVES", 0.0)
    work = small_disk / "work"
    with pytest.raises(StorageError, match=r"no space left on device while writing.*run again"):
        train_bpe(path, 300, work_dir=work, chunk_size=10_000)
    manifest = json.loads((work / "manifest.json").read_text())
    assert manifest["num_bytes"] > 0  # what was saved before is not lost
    (small_disk / "rubbish").unlink()
    monkeypatch.undo()
    assert train_bpe(path, 300, work_dir=work) == train_bpe(path, 300)
