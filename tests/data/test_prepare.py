"""Text becomes ids once for each content, and the right ids are held out."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trafo.data import prepare as module
from trafo.data.prepare import DataConfig, Dataset, content_hash, prepare
from trafo.errors import ConfigError, FormatError, InputError
from trafo.tokenizer import open_inputs
from trafo.tokenizer.token_file import TokenFile
from trafo.tokenizer.tokenizer import Tokenizer

TEXT = "the cat sat on the mat, and the dog sat on the cat. " * 40
VOCAB = 300


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return DataConfig(cache=tmp_path / "cache")


def whole(dataset: Dataset) -> list[int]:
    return [*dataset.training.tolist(), *dataset.validation.tolist()]


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("this was to come from the cache")


def test_the_ids_are_those_of_the_text(text: Path, config: DataConfig) -> None:
    dataset = prepare([str(text)], config, VOCAB)
    ids = whole(dataset)
    end = dataset.tokenizer.special_tokens["<|endoftext|>"]
    assert ids == [*dataset.tokenizer.encode(TEXT), end]
    assert dataset.tokenizer.decode(ids[:-1]) == TEXT
    assert dataset.tokenizer.vocab_size <= VOCAB


@pytest.mark.parametrize("share", [0.1, 0.25, 0.9, 1e-9])
def test_so_many_are_held_out_at_the_end(text: Path, tmp_path: Path, share: float) -> None:
    dataset = prepare([str(text)], DataConfig(cache=tmp_path / "c", held_out=share), VOCAB)
    num_ids = len(whole(dataset))
    assert len(dataset.validation) == max(1, round(share * num_ids))
    all_ids = prepare([str(text)], DataConfig(cache=tmp_path / "c"), VOCAB)
    assert whole(dataset) == whole(all_ids)


def test_the_same_content_elsewhere_is_not_encoded_again(
    text: Path, config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(prepare([str(text)], config, VOCAB))
    moved = tmp_path / "elsewhere" / "b.txt"
    moved.parent.mkdir()
    text.rename(moved)
    os.utime(moved, (1, 1))
    monkeypatch.setattr(module, "encode_files", refuse)
    monkeypatch.setattr(module, "train_tokenizer", refuse)
    assert whole(prepare([str(moved)], config, VOCAB)) == expected


@pytest.mark.parametrize("change", ["content", "vocabulary", "pattern", "order", "kind of file"])
def test_what_differs_is_made_anew(
    text: Path, config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    other = tmp_path / "b.txt"
    other.write_text("another text " * 50)
    texts, vocab = [str(text), str(other)], VOCAB
    prepare(texts, config, vocab)
    if change == "content":
        stat = text.stat()
        text.write_text(TEXT.replace("cat", "cow"))  # as long and as old as before
        os.utime(text, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "vocabulary":
        vocab += 1
    elif change == "pattern":
        config = DataConfig(cache=config.cache, pattern="gpt4")
    elif change == "order":
        texts.reverse()
    else:
        texts[1] = str(other.rename(tmp_path / "b.md"))
    monkeypatch.setattr(module, "train_tokenizer", refuse)
    with pytest.raises(AssertionError, match="from the cache"):
        prepare(texts, config, vocab)


def test_a_border_between_files_counts(tmp_path: Path) -> None:
    hashes = set()
    for index, parts in enumerate((["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""])):
        paths = [tmp_path / f"{index}-{number}.txt" for number in range(len(parts))]
        for path, part in zip(paths, parts, strict=True):
            path.write_text(part)
        hashes.add(content_hash(open_inputs(paths)))
    assert len(hashes) == 4


def test_texts_of_their_own_for_validation(text: Path, tmp_path: Path) -> None:
    held = tmp_path / "held.txt"
    held.write_text("the mat sat on the dog.")
    config = DataConfig(cache=tmp_path / "cache")
    dataset = prepare([str(text)], config, VOCAB, [str(held)])
    assert dataset.tokenizer.decode(dataset.training[:-1].tolist()) == TEXT
    assert dataset.tokenizer.decode(dataset.validation[:-1].tolist()) == "the mat sat on the dog."


def test_a_tokenizer_of_ones_own_is_used(text: Path, tmp_path: Path) -> None:
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save(tmp_path / "bytes")
    config = DataConfig(cache=tmp_path / "cache", tokenizer=tmp_path / "bytes")
    assert whole(prepare([str(text)], config, VOCAB)) == list(TEXT.encode())


def test_a_token_file_is_used_as_it_is(text: Path, config: DataConfig, tmp_path: Path) -> None:
    made = prepare([str(text)], config, VOCAB)
    made.tokenizer.save(tmp_path / "tokenizer")
    (tokens,) = config.cache.glob("*.tokens")
    given = DataConfig(tokens=tokens, tokenizer=tmp_path / "tokenizer", cache=tmp_path / "unused")
    dataset = prepare([], given, VOCAB)
    assert whole(dataset) == whole(made)
    flip_a_bit(tokens)
    with pytest.raises(FormatError, match="wrong checksum"):
        prepare([], given, VOCAB)
    assert isinstance(dataset.training, np.memmap)
    assert not (tmp_path / "unused").exists()


def test_a_token_file_of_another_tokenizer_is_refused(
    text: Path, config: DataConfig, tmp_path: Path
) -> None:
    prepare([str(text)], config, VOCAB)
    (tokens,) = config.cache.glob("*.tokens")
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save(tmp_path / "bytes")
    with pytest.raises(InputError, match="made by another tokenizer"):
        prepare([], DataConfig(tokens=tokens, tokenizer=tmp_path / "bytes"), VOCAB)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 2)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        *itertools.product(("*.tokens", "*.tokens.documents"), (cut_off, flip_a_bit, Path.unlink)),
        ("*.tokens.json", cut_off),
        ("*.tokens.json", Path.unlink),
    ],
)
def test_a_damaged_token_file_is_made_anew(
    text: Path, config: DataConfig, capsys: pytest.CaptureFixture[str], file: str, harm: Any
) -> None:
    expected = whole(prepare([str(text)], config, VOCAB))
    capsys.readouterr()
    (path,) = config.cache.glob(file)
    harm(path)
    assert whole(prepare([str(text)], config, VOCAB)) == expected
    said = capsys.readouterr().err
    if (file, harm) != ("*.tokens.json", Path.unlink):  # which means that it never was finished
        assert str(path) in said
        assert "making it again" in said
    assert whole(prepare([str(text)], config, VOCAB)) == expected
    assert "making it again" not in capsys.readouterr().err


@pytest.mark.parametrize("file", ["vocab.json", "merges.txt", "trafo.json"])
def test_a_damaged_tokenizer_is_made_anew(
    text: Path, config: DataConfig, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    expected = prepare([str(text)], config, VOCAB).tokenizer.hash
    (path,) = config.cache.glob(f"tokenizer-*/{file}")
    path.write_text(path.read_text().replace("th", "ht").replace("gpt2", "gpt4"))
    assert prepare([str(text)], config, VOCAB).tokenizer.hash == expected
    assert "making it again" in capsys.readouterr().err


def test_a_tokenizer_is_finished_when_its_last_file_is_there(
    text: Path, config: DataConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = prepare([str(text)], config, VOCAB).tokenizer.hash
    (last,) = config.cache.glob("tokenizer-*/trafo.json")
    last.unlink()
    for name in ("vocab.json", "tokenizer.json"):  # killed while writing over an older one
        (last.parent / name).write_text("{}")
    assert prepare([str(text)], config, VOCAB).tokenizer.hash == expected


def test_other_processes_leave_the_cache_alone(text: Path, config: DataConfig) -> None:
    with pytest.raises(ConfigError, match=r"first process.*all processes see"):
        prepare([str(text)], config, VOCAB, read_only=True)
    assert not config.cache.exists()
    made = prepare([str(text)], config, VOCAB)
    (tokens,) = config.cache.glob("*.tokens")
    before = {path: path.stat().st_mtime_ns for path in config.cache.rglob("*")}
    assert whole(prepare([str(text)], config, VOCAB, read_only=True)) == whole(made)
    assert {path: path.stat().st_mtime_ns for path in config.cache.rglob("*")} == before
    cut_off(tokens)
    with pytest.raises(FormatError, match=str(tokens)):
        prepare([str(text)], config, VOCAB, read_only=True)


def test_abandoned_work_is_removed_and_work_under_way_is_not(
    text: Path, config: DataConfig
) -> None:
    config.cache.mkdir()
    names = [".a.tokens.partial", ".a.tokens.partial.json", ".a.0123456789ab.tmp"]
    for name in names:
        (config.cache / f".old{name}").touch()
        os.utime(config.cache / f".old{name}", (1, 1))
        (config.cache / f".new{name}").touch()
    prepare([str(text)], config, VOCAB)
    hidden = {path.name for path in config.cache.glob(".*")}
    assert hidden == {f".new{name}" for name in names}


def test_compressed_text_is_read_as_text(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    plain, unpacked = (
        prepare([str(path)], DataConfig(cache=tmp_path / path.suffix), VOCAB)
        for path in (text, packed)
    )
    assert whole(plain) == whole(unpacked)


def test_mistakes(tmp_path: Path) -> None:
    config = DataConfig(cache=tmp_path / "cache")
    with pytest.raises(ConfigError, match="no text"):
        prepare([], config, VOCAB)
    with pytest.raises(InputError, match=r"nowhere\.txt"):
        prepare([str(tmp_path / "nowhere.txt")], config, VOCAB)
    with pytest.raises(ConfigError, match=r"data\.held_out"):
        DataConfig(held_out=1.0)
    with pytest.raises(ConfigError, match=r"data\.tokenizer"):
        DataConfig(tokens=Path("some.tokens"))


def test_an_empty_text_is_refused_each_time(tmp_path: Path) -> None:
    empty, config = tmp_path / "empty.txt", DataConfig(cache=tmp_path / "cache")
    empty.write_text("")
    for _ in range(2):
        with pytest.raises(InputError, match="empty"):
            prepare([str(empty)], config, VOCAB)


def test_a_held_out_file_is_opened_by_its_own_name(text: Path, config: DataConfig) -> None:
    """What is in the cache can be used elsewhere: it is an ordinary token file."""
    dataset = prepare([str(text)], config, VOCAB)
    (tokens,) = config.cache.glob("*.tokens")
    assert TokenFile.open(tokens, dataset.tokenizer.hash).ids.tolist() == whole(dataset)


def test_the_text_of_records_is_in_the_field_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record = {"body": TEXT, "text": TEXT.upper()}
    path.write_text(json.dumps(record) + "\n")
    cache = tmp_path / "cache"
    texts = []
    for field in ("body", "text", "body"):  # the cache tells them apart
        dataset = prepare([str(path)], DataConfig(cache=cache, field=field), VOCAB)
        texts.append(dataset.tokenizer.decode(whole(dataset)[:-1]))
    assert texts == [TEXT, TEXT.upper(), TEXT]


def test_invalid_utf8_stops_or_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode() + b"\xff" + TEXT.encode())
    cache = tmp_path / "cache"
    with pytest.raises(InputError, match="UTF-8"):
        prepare([str(path)], DataConfig(cache=cache), VOCAB)
    dataset = prepare([str(path)], DataConfig(cache=cache, errors="replace"), VOCAB)
    assert dataset.tokenizer.decode(whole(dataset)[:-1]) == f"{TEXT}\ufffd{TEXT}"
