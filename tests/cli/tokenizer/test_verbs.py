"""Each verb of `trafo tokenizer` as a user meets it: what it prints, writes, and refuses."""

import gzip
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as HuggingFace

from trafo.cli.main import main
from trafo.cli.tokenizer.convert import SAMPLE
from trafo.cli.tokenizer.decode import numbers_in
from trafo.tokenizer.patterns import split_words
from trafo.tokenizer.reference import decode_reference, encode_reference, train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"
TEXT = f"low low low low low lower lower widest widest widest newest newest\n{END}Größe 猫\n" * 9
VOCAB_SIZE = 275


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "tok"
    assert main(train_line(text, folder)) == 0
    return folder


def train_line(text: Path, out: Path, *more: str) -> list[str]:
    size = [] if "--vocab-size" in more else ["--vocab-size", str(VOCAB_SIZE)]
    return ["tokenizer", "train", str(text), "--out", str(out), *size, *more]


@pytest.fixture
def refused(capsys):
    """Runs a command line that must be answered with one line and exit code 2."""

    def run(*argv: object) -> str:
        capsys.readouterr()
        assert main(["tokenizer", *map(str, argv)]) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(r"error: [^\n]+\n", error)
        return error

    return run


@pytest.fixture
def printed(capsys):
    """Runs a command line that must succeed; gives what it prints."""

    def run(*argv: object) -> str:
        capsys.readouterr()
        assert main(["tokenizer", *map(str, argv)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def piped(monkeypatch):
    """Puts bytes on stdin."""

    def pipe(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return pipe


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# train


def test_train_gives_the_merges_of_the_reference(trained):
    vocab, merges = train_bpe_reference(TEXT, VOCAB_SIZE, [END])
    tokenizer = Tokenizer.load(trained)
    assert tokenizer.merges == merges
    assert tokenizer.vocab == vocab
    assert tokenizer.special_tokens == {END: VOCAB_SIZE - 1}


def test_train_says_how_it_went(text, tmp_path, printed):
    shown = printed(*train_line(text, tmp_path / "tok")[1:])
    for words in ("counting", "merging", "MB/s", "merges/s", "peak memory", "bytes per token"):
        assert words in shown
    words = [word for piece in TEXT.split(END) for word in split_words(piece)]
    assert re.search(rf"distinct words +{len(set(words))} +of {len(words)} words", shown)
    assert "256 bytes, 18 merges, 1 special" in shown
    ids = encode_reference(TEXT, *train_bpe_reference(TEXT, VOCAB_SIZE, [END]), [END])
    assert re.search(rf"bytes per token +{len(TEXT.encode()) / len(ids):.2f}\n", shown)


def test_the_command_that_train_prints_works(text, tmp_path, printed):
    line = printed(*train_line(text, tmp_path / "my tok")[1:]).splitlines()[-1]
    arguments = shlex.split(line)
    assert "bytes per token" in printed(*arguments[arguments.index("tokenizer") + 1 :])


def test_a_text_with_too_few_pairs(tmp_path, printed):
    (tmp_path / "tiny.txt").write_text("aaaa")
    shown = printed(*train_line(tmp_path / "tiny.txt", tmp_path / "tok")[1:])
    assert "2 merges, 1 special; no pairs are left" in shown


def test_training_again_gives_the_same_folder_to_the_byte(text, trained, tmp_path, capsys):
    again = tmp_path / "tok"
    for _ in range(2):
        assert main(train_line(text, again, "--workers", "2")) == 0
        assert files_in(again) == files_in(trained)


def test_what_an_interrupted_run_left_is_no_obstacle(text, trained, tmp_path, capsys):
    folder = tmp_path / "tok"
    assert main(train_line(text, folder)) == 0
    (folder / "trafo.json").unlink()  # it is written last
    (folder / "merges.txt").write_text("")
    assert main(train_line(text, folder)) == 0
    assert files_in(folder) == files_in(trained)


def test_a_larger_vocabulary_begins_with_the_smaller_one(text, tmp_path, capsys):
    assert main(train_line(text, tmp_path / "tok")) == 0
    small = Tokenizer.load(tmp_path / "tok").merges
    assert main(train_line(text, tmp_path / "tok", "--vocab-size", "280")) == 0
    large = Tokenizer.load(tmp_path / "tok").merges
    assert len(large) == len(small) + 5
    assert large[: len(small)] == small


def test_train_replaces_nothing_unasked(trained, tmp_path, refused, capsys):
    other = tmp_path / "other.txt"
    other.write_text("something else entirely")
    before = files_in(trained)
    assert "trained differently (inputs differ)" in refused(*train_line(other, trained)[1:])
    assert files_in(trained) == before

    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "vocab.json").write_text("{}")
    assert "already has a tokenizer" in refused(*train_line(other, folder)[1:])
    assert files_in(folder) == {"vocab.json": b"{}"}
    assert main(train_line(other, folder, "--overwrite")) == 0
    assert Tokenizer.load(folder).decode([0]) == "\0"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--vocab-size", "100"], "a vocabulary of 100 is too small"),
        (["--pattern", "gtp2"], "did you mean gpt2?"),
        (["--pattern", "("], "not a regular expression"),
        (["--max-memory", "lots"], "'lots' is not a size"),
        (["--workers", "0"], "--workers is 0"),
        (["--special-tokens", ""], "a special token is empty"),
        (["--vocab-sise", "9"], "did you mean --vocab-size?"),
    ],
)
def test_train_refuses(text, tmp_path, refused, more, complaint):
    assert complaint in refused(*train_line(text, tmp_path / "tok", *more)[1:])
    assert list(tmp_path.iterdir()) == []


def test_train_on_what_is_not_there_or_not_text(tmp_path, refused):
    out = tmp_path / "tok"
    assert "no such file" in refused(*train_line(tmp_path / "absent", out)[1:])
    assert "no input files" in refused("train", "--vocab-size", 300, "--out", out)
    (tmp_path / "wrong.txt").write_bytes(b"abc \xff def")
    complaint = refused(*train_line(tmp_path / "wrong.txt", out)[1:])
    assert "wrong.txt: not UTF-8: byte 0xff at offset 4" in complaint
    assert not (out / "trafo.json").exists()
    (tmp_path / "file").touch()
    assert "is a file" in refused(*train_line(tmp_path / "wrong.txt", tmp_path / "file")[1:])


def test_train_with_options(tmp_path, printed):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"body": "aa bb <x> aa"}\n' * 9))
    printed(
        *("train", tmp_path / "a.jsonl.gz", "--vocab-size", 260, "--out", tmp_path / "tok"),
        *("--field", "body", "--special-tokens", "<x>", "<y>", "--pattern", "whitespace"),
        *("--max-memory", "1GB"),
    )
    tokenizer = Tokenizer.load(tmp_path / "tok")
    assert tokenizer.merges == [(b"a", b"a"), (b"b", b"b")]
    assert tokenizer.special_tokens == {"<x>": 258, "<y>": 259}
    assert tokenizer.pattern == "whitespace"


# encode


def test_encode_prints_ids_of_a_text_or_of_stdin(trained, printed, piped):
    vocab, merges = train_bpe_reference(TEXT, VOCAB_SIZE, [END])
    expected = " ".join(map(str, encode_reference(TEXT, vocab, merges, [END]))) + "\n"
    assert printed("encode", trained, "--text", TEXT) == expected
    piped(TEXT.encode())
    assert printed("encode", trained) == expected
    assert printed("encode", trained, "--text", "") == "\n"


def test_encode_keeps_line_ends_as_they_are(trained, printed, piped):
    piped(b"a\r\nb\rc")
    assert printed("encode", trained) == "97 13 10 98 13 99\n"


def test_encode_and_special_tokens(trained, printed, refused):
    assert printed("encode", trained, "--text", END) == f"{VOCAB_SIZE - 1}\n"
    plain = printed("encode", trained, "--text", END, "--special", "ignore").split()
    assert str(VOCAB_SIZE - 1) not in plain
    assert decode_reference(map(int, plain), Tokenizer.load(trained).vocab) == END
    assert "contains the special token" in refused(
        "encode", trained, "--text", END, "--special", "refuse"
    )


def test_encode_writes_a_token_file(trained, text, tmp_path, printed):
    out = tmp_path / "text.tokens"
    shown = printed("encode", trained, text, "--out", out)
    ids = encode_reference(TEXT, *train_bpe_reference(TEXT, VOCAB_SIZE, [END]), [END])
    assert np.fromfile(out, "<u2").tolist() == ids
    assert f"{len(ids):,} tokens" in shown
    assert f"({len(TEXT.encode()) / len(ids):.2f} bytes per token)" in shown
    assert json.loads((tmp_path / "text.tokens.json").read_text())["num_tokens"] == len(ids)
    assert f"{out} was up to date" in printed("encode", trained, text, "--out", out)

    arguments = shlex.split(shown.splitlines()[-1])
    assert printed(*arguments[arguments.index("tokenizer") + 1 :]) == TEXT


def test_encode_refuses(trained, text, tmp_path, refused, piped, monkeypatch):
    assert "--out is missing" in refused("encode", trained, text)
    assert "--out is for files" in refused("encode", trained, "--out", tmp_path / "x")
    assert "give one of them" in refused("encode", trained, text, "--text", "a")
    assert "no such file" in refused(
        "encode", trained, tmp_path / "absent", "--out", tmp_path / "x"
    )
    assert "no such file" in refused("encode", tmp_path / "absent", "--text", "a")
    piped(b"abc" * 30000 + b"\xe7\x8c")
    assert "stdin: not UTF-8: byte 0xe7 at offset 90,000" in refused("encode", trained)
    monkeypatch.setattr("trafo.cli.tokenizer.pipes.is_interactive", lambda: True)
    assert "no text given" in refused("encode", trained)
    assert list(tmp_path.iterdir()) == []


def test_encode_replaces_no_file_that_is_not_its_own(trained, text, tmp_path, refused):
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    assert "is not a token file" in refused("encode", trained, text, "--out", precious)
    assert files_in(tmp_path) == {"thesis.txt": b"years of work"}


def test_encode_a_damaged_file_leaves_no_token_file(trained, tmp_path, refused):
    (tmp_path / "wrong.txt").write_bytes(b"abc\xff")
    complaint = refused("encode", trained, tmp_path / "wrong.txt", "--out", tmp_path / "x.tokens")
    assert "wrong.txt: not UTF-8" in complaint
    assert not (tmp_path / "x.tokens").exists()
    assert not (tmp_path / "x.tokens.json").exists()


# decode


def test_decode_inverts_encode(trained, printed, piped):
    ids = printed("encode", trained, "--text", TEXT)
    assert printed("decode", trained, *ids.split()) == TEXT
    piped(ids.replace(" ", "\n ").encode())
    assert printed("decode", trained) == TEXT


def test_decode_half_a_character(trained, printed):
    assert printed("decode", trained, *"猫".encode()[:2]) == "\ufffd"


@pytest.mark.parametrize(
    ("word", "complaint"),
    [("275", "275 is not an id"), ("x", "'x' is not an id"), ("1.5", "'1.5'"), ("²", "'²'")],
)
def test_decode_refuses(trained, refused, piped, word, complaint):
    assert complaint in refused("decode", trained, 97, word)
    piped(word.encode())
    assert complaint in refused("decode", trained)


def test_decode_refuses_the_tokens_of_another(trained, text, tmp_path, printed, refused):
    printed("encode", trained, text, "--out", tmp_path / "x.tokens")
    printed(*train_line(text, tmp_path / "other", "--vocab-size", "280")[1:])
    complaint = refused("decode", tmp_path / "other", "--tokens", tmp_path / "x.tokens")
    assert "made by another tokenizer" in complaint
    assert "no such file" in refused("decode", trained, "--tokens", tmp_path / "absent")
    assert "give one of them" in refused("decode", trained, 1, "--tokens", tmp_path / "x.tokens")


def test_numbers_cut_anywhere():
    text = " 12 345\n6  "
    for cut in range(len(text) + 1):
        assert list(numbers_in([text[:cut], text[cut:]])) == ["12", "345", "6"]
    assert list(numbers_in(list("12 3"))) == ["12", "3"]
    assert list(numbers_in([])) == []


# report


def test_report(trained, text, printed):
    ids = encode_reference(TEXT, *train_bpe_reference(TEXT, VOCAB_SIZE, [END]), [END])
    shown = printed("report", trained, text)
    assert re.search(rf"bytes per token +{len(TEXT.encode()) / len(ids):.2f}\n", shown)
    assert re.search(rf"tokens +{len(ids)}\n", shown)


def test_report_as_json(trained, text, printed):
    facts = json.loads(printed("report", trained, text, "--json", "--top", 3))
    assert facts["tokenizer"] == str(trained)
    assert facts["hash"] == Tokenizer.load(trained).hash
    assert len(facts["longest"]) == len(facts["most_frequent"]) == 3
    both = json.loads(printed("report", trained, text, "--json", "--compare", trained))
    assert [report["total"] for report in both] == [facts["total"]] * 2


def test_report_compares_and_shows_tokens(trained, text, tmp_path, printed):
    printed(*train_line(text, tmp_path / "small", "--vocab-size", "258")[1:])
    shown = printed("report", trained, text, "--compare", tmp_path / "small", "--show", 8)
    assert re.search(r"tokens in the vocabulary +275 +258 +-6.2 %", shown)
    first, second = shown.splitlines()[0], shown.splitlines()[2]
    assert first.replace("|", "") == second.replace("|", "") == TEXT[:8]
    assert first.count("|") < second.count("|")


def test_report_refuses(trained, text, tmp_path, refused):
    assert "no input files" in refused("report", trained)
    assert "no such file" in refused("report", trained, tmp_path / "absent")
    assert "holds no tokenizer" in refused("report", tmp_path, text)
    assert "no such file" in refused("report", trained, text, "--compare", tmp_path / "absent")
    assert "--show is -1" in refused("report", trained, text, "--show=-1")


# convert


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("new", []),
        ("new.json", []),
        ("new.tiktoken", []),
        ("gpt2", ["--to", "gpt2"]),
        ("any.name", ["--to", "tiktoken"]),
    ],
)
def test_convert_there_and_back(trained, tmp_path, printed, name, flags):
    out = tmp_path / name
    assert "read back with the same ids" in printed("convert", trained, out, *flags)
    back = tmp_path / "back"
    printed("convert", out, back, "--pattern", "gpt2", "--special-tokens", END)
    sample = SAMPLE + TEXT
    assert Tokenizer.load(back).encode(sample) == Tokenizer.load(trained).encode(sample)


def test_convert_says_what_a_format_leaves_out(trained, tmp_path, printed):
    shown = printed("convert", trained, tmp_path / "x.tiktoken")
    assert "not in this format: the pattern, gpt2" in shown
    assert f"{END} = {VOCAB_SIZE - 1}" in shown


def test_hugging_face_reads_what_convert_writes(trained, tmp_path, printed):
    printed("convert", trained, tmp_path / "tokenizer.json")
    peer = HuggingFace.from_file(str(tmp_path / "tokenizer.json"))
    assert peer.encode(SAMPLE + TEXT).ids == Tokenizer.load(trained).encode(SAMPLE + TEXT)


def test_convert_refuses(trained, tmp_path, refused):
    (tmp_path / "there.json").write_text("{}")
    assert "the file already exists" in refused("convert", trained, tmp_path / "there.json")
    assert "does not say which format" in refused("convert", trained, tmp_path / "x.txt")
    assert "no such file" in refused("convert", tmp_path / "absent", tmp_path / "x")
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_text("YQ== 0\n")
    assert "name the pattern" in refused("convert", ranks, tmp_path / "x")
    assert files_in(tmp_path) == {"there.json": b"{}", "ranks.tiktoken": b"YQ== 0\n"}


def test_convert_overwrites_when_told(trained, tmp_path, printed):
    (tmp_path / "there.json").write_text("{}")
    printed("convert", trained, tmp_path / "there.json", "--overwrite")
    assert len(Tokenizer.load(tmp_path / "there.json").vocab) == VOCAB_SIZE


# In a process of its own


def test_a_pipe_of_two_processes(trained):
    command = shlex.quote(sys.executable) + " -m trafo tokenizer"
    folder = shlex.quote(str(trained))
    line = f"{command} encode {folder} | {command} decode {folder}"
    result = subprocess.run(line, shell=True, input=TEXT.encode(), capture_output=True, check=True)
    assert result.stdout == TEXT.encode()
    assert result.stderr == b""
