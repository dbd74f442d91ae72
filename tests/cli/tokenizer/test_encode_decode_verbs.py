"""`trafo tokenizer encode` and `decode`: what they print, write, and refuse."""

import json
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from trafo.checkpoint.convert.gguf_file import save_gguf
from trafo.cli.tokenizer.decode import split_numbers
from trafo.models import TransformerLM
from trafo.tokenizer.reference import decode_reference
from trafo.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"


# encode


def test_encode_prints_ids_of_a_text_or_of_stdin(trained, printed, piped, content, reference_ids):
    expected = " ".join(map(str, reference_ids)) + "\n"
    assert printed("encode", trained, "--text", content, "--special", "allow") == expected
    piped(content.encode())
    assert printed("encode", trained, "--special", "allow") == expected
    assert printed("encode", trained, "--text", "") == "\n"


def test_encode_keeps_line_ends_as_they_are(trained, printed, piped):
    piped(b"a\r\nb\rc")
    assert printed("encode", trained) == "97 13 10 98 13 99\n"


def test_encode_and_special_tokens(trained, printed, refused, piped, tmp_path):
    assert printed("encode", trained, "--text", END, "--special", "allow") == "274\n"
    plain = printed("encode", trained, "--text", END).split()
    assert printed("encode", trained, "--text", END, "--special", "ignore").split() == plain
    piped(END.encode())
    assert printed("encode", trained).split() == plain
    (tmp_path / "corpus.txt").write_text(f"a{END}b")
    printed("encode", trained, tmp_path / "corpus.txt", "--out", tmp_path / "a.tokens")
    assert np.fromfile(tmp_path / "a.tokens", "<u2").tolist() == [97, 274, 98]
    printed(
        *("encode", trained, tmp_path / "corpus.txt", "--out", tmp_path / "b.tokens"),
        *("--special", "ignore"),
    )
    assert np.fromfile(tmp_path / "b.tokens", "<u2").tolist() == [97, *map(int, plain), 98]
    assert "274" not in plain
    assert decode_reference(map(int, plain), Tokenizer.load(trained).vocab) == END
    assert "contains the special token" in refused(
        "encode", trained, "--text", END, "--special", "refuse"
    )


def test_encode_writes_a_token_file(trained, text, tmp_path, printed, content, reference_ids):
    out = tmp_path / "text.tokens"
    shown = printed("encode", trained, text, "--out", out)
    assert np.fromfile(out, "<u2").tolist() == reference_ids
    assert f"{len(reference_ids):,} tokens" in shown
    assert f"({len(content.encode()) / len(reference_ids):.2f} bytes per token)" in shown
    assert json.loads((tmp_path / "text.tokens.json").read_text())["num_tokens"] == len(
        reference_ids
    )
    assert f"{out} was up to date" in printed("encode", trained, text, "--out", out)

    arguments = shlex.split(shown.splitlines()[-1])
    assert printed(*arguments[arguments.index("tokenizer") + 1 :]) == content


@pytest.mark.parametrize("kind", ["run", "model.gguf"])
def test_the_tokenizer_of_a_model_will_do(trained, text, tmp_path, printed, content, kind):
    model = tmp_path / kind
    if kind == "run":
        (model / "checkpoints").mkdir(parents=True)
        shutil.copytree(trained, model / "tokenizer")
    else:
        pytest.importorskip("gguf")
        save_gguf(TransformerLM(275, 8, 8, 1, 2), model, tokenizer=Tokenizer.load(trained))
    shown = printed("encode", model, text, "--out", tmp_path / "text.tokens")
    arguments = shlex.split(shown.splitlines()[-1])
    assert printed(*arguments[arguments.index("tokenizer") + 1 :]) == content
    assert "275 tokens" in printed("report", model, text)
    assert "275 tokens" in printed("convert", model, tmp_path / "copy")
    assert Tokenizer.load(tmp_path / "copy").hash == Tokenizer.load(trained).hash


@pytest.mark.parametrize(("verb", "what"), [("encode", "the text"), ("decode", "ids")])
def test_a_silent_pipe_is_waited_for_aloud(trained, verb, what):
    """What is piped at once is not, and stdout is the same."""
    line = [sys.executable, "-m", "trafo", "tokenizer", verb, str(trained)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, **pipes) as waiting:
        said = waiting.stderr.readline().decode()
        out, _ = waiting.communicate(b"108 111")
    assert said == f"waiting for {what} on standard input\n"
    at_once = subprocess.run(line, input=b"108 111", capture_output=True, check=True)
    assert at_once.stdout == out
    assert b"waiting" not in at_once.stderr


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
    monkeypatch.setattr("sys.stdin", None)  # as in a program without a terminal
    assert "no text given" in refused("encode", trained)
    assert list(tmp_path.iterdir()) == []


def test_encode_replaces_no_file_that_is_not_its_own(trained, text, tmp_path, refused, files_in):
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


def test_decode_inverts_encode(trained, printed, piped, content):
    ids = printed("encode", trained, "--text", content)
    assert printed("decode", trained, *ids.split()) == content
    piped(ids.replace(" ", "\n ").encode())
    assert printed("decode", trained) == content


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
    printed("train", text, "--out", tmp_path / "other", "--vocab-size", 280)
    complaint = refused("decode", tmp_path / "other", "--tokens", tmp_path / "x.tokens")
    assert "made by another tokenizer" in complaint
    assert "no such file" in refused("decode", trained, "--tokens", tmp_path / "absent")
    assert "give one of them" in refused("decode", trained, 1, "--tokens", tmp_path / "x.tokens")


def test_numbers_cut_anywhere():
    text = " 12 345\n6  "
    for cut in range(len(text) + 1):
        assert list(split_numbers([text[:cut], text[cut:]])) == ["12", "345", "6"]
    assert list(split_numbers(list("12 3"))) == ["12", "3"]
    assert list(split_numbers([])) == []


# In a process of its own


def test_a_pipe_of_two_processes(trained, content):
    command = shlex.quote(sys.executable) + " -m trafo tokenizer"
    folder = shlex.quote(str(trained))
    line = f"{command} encode {folder} | {command} decode {folder}"
    result = subprocess.run(
        line, shell=True, input=content.encode(), capture_output=True, check=True
    )
    assert result.stdout == content.encode()
    assert result.stderr in (b"", b"waiting for ids on standard input\n")  # on a busy machine
