"""Unreasonable texts and files: they work, or one line says why not."""

import gzip
import json
import os
from pathlib import Path

import pytest

from trafo.cli.main import main
from trafo.errors import FormatError, InputError
from trafo.runtime.json_text import read_json
from trafo.tokenizer import Tokenizer, chunks, encode_files, open_inputs, train_bpe
from trafo.tokenizer.formats.spec import TokenizerSpec, with_special_tokens
from trafo.tokenizer.kernels.arrays import LONGEST_TOKEN
from trafo.tokenizer.reference import train_bpe_reference
from trafo.tokenizer.report import measure_tokenizer

BYTES = {i: bytes([i]) for i in range(256)}
JOINED_EMOJI = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}\u200d\N{BOY}"


@pytest.mark.parametrize("piece", ["a", "<|e|>", JOINED_EMOJI])
@pytest.mark.parametrize("options", [{}, {"max_memory": 16 << 20, "num_workers": 1}])
def test_one_piece_over_and_over(tmp_path: Path, piece: str, options: dict[str, int]) -> None:
    """One word, or none, and tokens that double in length: to the report, in every way."""
    text = piece * (9_000 // len(piece.encode()))
    (tmp_path / "t.txt").write_text(text)
    trained = train_bpe(tmp_path / "t.txt", 290, ["<|e|>"], **options)
    assert trained == train_bpe_reference(text, 290, ["<|e|>"])
    assert max(map(len, trained[0].values())) <= LONGEST_TOKEN
    tokenizer = Tokenizer(*trained, ["<|e|>"])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    report = measure_tokenizer(tokenizer, tmp_path / "t.txt")
    assert report.total.num_bytes == len(text.encode())
    assert len(json.dumps(report.to_dict())) < 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["a", JOINED_EMOJI])
def test_twenty_megabytes_of_one_piece(tmp_path: Path, piece: str) -> None:
    size = 20_000_000
    (tmp_path / "t.txt").write_text(piece * (size // len(piece.encode())))
    line = ["tokenizer", "train", str(tmp_path / "t.txt"), "--vocab-size", "10000"]
    assert main([*line, "--out", str(tmp_path / "tok")]) == 0
    saved = sum(file.stat().st_size for file in (tmp_path / "tok").glob("*.*"))
    assert saved < 1_000_000
    report = measure_tokenizer(Tokenizer.load(tmp_path / "tok"), tmp_path / "t.txt")
    assert report.total.bytes_per_token > 1000


@pytest.mark.parametrize("name", ["bomb.txt.gz", "plain.txt"])
def test_a_word_that_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"\0" * 4_000_000
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    monkeypatch.setattr(chunks, "available_memory", lambda: 50_000_000)
    says = r"without a place to cut, which needs about .* of memory, and 50.0 MB is available"
    with pytest.raises(InputError, match=says):
        train_bpe(path, 300, chunk_size=1 << 16)
    with pytest.raises(InputError, match=r"and 20\.0 MB is available"):
        train_bpe(path, 300, max_memory=20_000_000)


def test_text_of_only_special_tokens_and_empty_text(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    for text in ("<|e|><|e|>", ""):
        path.write_text(text)
        vocab, merges = train_bpe(path, 300, ["<|e|>"])
        assert merges == []
        tokenizer = Tokenizer(vocab, merges, ["<|e|>"])
        assert tokenizer.encode(text) == [256] * (len(text) // 5)
        assert len(encode_files(tokenizer, path, tmp_path / f"{len(text)}.tokens").ids) in (0, 2)


# Pipes, devices, empty and odd names


def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", tmp_path, "/dev/zero", "/dev/null"):
        with pytest.raises(InputError, match="pipe or a device"):
            open_inputs(path)
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        os.mkfifo(tmp_path / name)
    for path in (tmp_path / "pipe.txt", tmp_path / "tokenizer.json", "/dev/zero", tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            Tokenizer.load(path)


def test_an_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(InputError, match="path of a text is empty"):
        open_inputs("")
    with pytest.raises(InputError, match="path of a text is empty"):
        open_inputs(["", "x"])
    with pytest.raises(InputError, match="path of the tokenizer is empty"):
        Tokenizer.load("")


@pytest.mark.parametrize(
    "line",
    [
        ["train", "", "--vocab-size", "300", "--out", "t"],
        ["train", "x", "--vocab-size", "300", "--out", ""],
        ["encode", "", "--text", "x"],
        ["encode", "tok", "x", "--out", ""],
        ["report", "", "x"],
        ["decode", "tok", "--tokens", ""],
        ["convert", "tok", ""],
    ],
)
def test_no_verb_takes_an_empty_path(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tokenizer", *line]) == 2
    said = capsys.readouterr().err
    assert " is empty" in said or "got ''" in said
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_utf8(tmp_path: Path, capsys) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xffame.txt"))
    path.write_text("low lower lowest low")
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/t\xfek"))
    for _ in range(2):  # the second time, everything is there
        assert (
            main(["tokenizer", "train", str(path), "--vocab-size", "260", "--out", str(out)]) == 0
        )
    assert main(["tokenizer", "report", str(out), str(path)]) == 0
    tokens = Path(f"{path}.tokens")
    assert main(["tokenizer", "encode", str(out), str(path), "--out", str(tokens)]) == 0
    assert "written to" in capsys.readouterr().out


# Large tables


def test_ten_thousand_special_tokens() -> None:
    specials = [f"<|{number}|>" for number in range(10_000)]
    tokenizer = Tokenizer(BYTES, [], specials)
    text = "<|" + "<|a".join(specials) + "<|99|"
    expected: list[int] = []
    for number in range(10_000):
        expected += [*(b"<|" if number == 0 else b"<|a"), 256 + number]
    assert tokenizer.encode(text) == [*expected, *b"<|99|"]
    assert tokenizer.encode("<|1") == list(b"<|1")
    assert tokenizer.encode("<|1|>1", special="ignore") == list(b"<|1|>1")


def test_large_tables_take_time_in_proportion() -> None:
    """By counting how often what was quadratic is asked, for a clock proves nothing."""

    class Counted(dict[int, bytes]):
        asked = 0

        def __iter__(self):
            Counted.asked += 1
            return super().__iter__()

    spec = TokenizerSpec(BYTES, [])
    object.__setattr__(spec, "vocab", Counted(BYTES))
    with_special_tokens(spec, [f"<{number}>" for number in range(2_000)])
    assert Counted.asked <= 4


def test_a_key_that_comes_twice_at_the_end_of_a_large_file(tmp_path: Path) -> None:
    pairs = ", ".join(f'"x{number}": {number}' for number in range(100_000))
    (tmp_path / "vocab.json").write_text(f'{{{pairs}, "x99999": 0}}')
    with pytest.raises(FormatError, match="'x99999' is given twice"):
        read_json(tmp_path / "vocab.json")
