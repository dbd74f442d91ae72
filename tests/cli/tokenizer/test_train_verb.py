"""`trafo tokenizer train` as a user meets it: what it prints, writes, and refuses."""

import gzip
import re
import shlex
from pathlib import Path

import pytest

from trafo.cli.main import main
from trafo.tokenizer.patterns import split_words
from trafo.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"


def train_line(text: Path, out: Path, *more: str) -> list[str]:
    size = [] if "--vocab-size" in more else ["--vocab-size", "275"]
    return ["tokenizer", "train", str(text), "--out", str(out), *size, *more]


def test_train_gives_the_merges_of_the_reference(trained, reference):
    tokenizer = Tokenizer.load(trained)
    assert (tokenizer.vocab, tokenizer.merges) == reference
    assert tokenizer.special_tokens == {END: 274}


def test_train_says_how_it_went(text, tmp_path, printed, content, reference_ids):
    shown = printed(*train_line(text, tmp_path / "tok")[1:])
    for words in ("counting", "merging", "B/s", "merges/s", "peak memory", "bytes per token"):
        assert words in shown
    words = [word for piece in content.split(END) for word in split_words(piece)]
    assert re.search(rf"distinct words +{len(set(words))} +of {len(words)} words", shown)
    assert "256 bytes, 18 merges, 1 special" in shown
    assert re.search(rf"bytes per token +{len(content.encode()) / len(reference_ids):.2f}\n", shown)


def test_the_command_that_train_prints_works(text, tmp_path, printed):
    line = printed(*train_line(text, tmp_path / "my tok")[1:]).splitlines()[-1]
    arguments = shlex.split(line)
    assert "bytes per token" in printed(*arguments[arguments.index("tokenizer") + 1 :])


def test_a_text_with_too_few_pairs(tmp_path, printed):
    (tmp_path / "tiny.txt").write_text("aaaa")
    shown = printed(*train_line(tmp_path / "tiny.txt", tmp_path / "tok")[1:])
    assert "2 merges, 1 special; no pairs are left" in shown


def test_training_again_gives_the_same_folder_to_the_byte(
    text, trained, tmp_path, capsys, files_in
):
    again = tmp_path / "tok"
    for _ in range(2):
        assert main(train_line(text, again, "--workers", "2")) == 0
        assert files_in(again) == files_in(trained)


def test_what_an_interrupted_run_left_is_no_obstacle(text, trained, tmp_path, capsys, files_in):
    folder = tmp_path / "tok"
    assert main(train_line(text, folder)) == 0
    (folder / "trafo.json").unlink()  # it is written last
    (folder / "merges.txt").write_text("")
    assert main(train_line(text, folder)) == 0
    assert files_in(folder) == files_in(trained)


def test_another_size_replaces_the_tokenizer_only_if_asked(
    text, tmp_path, capsys, refused, files_in
):
    assert main(train_line(text, tmp_path / "tok")) == 0
    small = Tokenizer.load(tmp_path / "tok").merges
    before = files_in(tmp_path / "tok")
    larger = train_line(text, tmp_path / "tok", "--vocab-size", "280")
    assert "trained differently (other vocab size)" in refused(*larger[1:])
    assert files_in(tmp_path / "tok") == before
    assert main([*larger, "--overwrite"]) == 0
    large = Tokenizer.load(tmp_path / "tok").merges
    assert len(large) == len(small) + 5
    assert large[: len(small)] == small


def test_train_replaces_nothing_unasked(trained, tmp_path, refused, capsys, files_in):
    other = tmp_path / "other.txt"
    other.write_text("something else entirely")
    before = files_in(trained)
    assert "trained differently (other inputs)" in refused(*train_line(other, trained)[1:])
    assert files_in(trained) == before

    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "vocab.json").write_text("{}")
    assert "already has a tokenizer" in refused(*train_line(other, folder)[1:])
    assert files_in(folder) == {"vocab.json": b"{}"}
    assert main(train_line(other, folder, "--overwrite")) == 0
    assert Tokenizer.load(folder).decode([0]) == "\0"


def test_counts_of_another_text_do_not_let_a_tokenizer_be_replaced(
    text, tmp_path, refused, capsys, files_in
):
    """A killed training leaves its counts; somebody else's tokenizer may lie beside them."""
    folder, other = tmp_path / "tok", tmp_path / "other.txt"
    other.write_text("something else entirely")
    assert main(train_line(other, folder)) == 0
    (folder / "trafo.json").unlink()
    before = files_in(folder)
    assert "already has a tokenizer" in refused(*train_line(text, folder)[1:])
    assert files_in(folder) == before
    assert main(train_line(text, folder, "--overwrite")) == 0


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
    for name, content in (("empty.txt", b""), ("empty.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(content)
        complaint = refused(*train_line(tmp_path / name, tmp_path / "none")[1:])
        assert f"{name}: the text is empty" in complaint
    assert not (tmp_path / "none").exists()
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
