"""The first command that anybody runs."""

import re
import shlex

import pytest

from trafo.cli.main import main
from trafo.tokenizer.token_file import TokenFile
from trafo.tokenizer.tokenizer import Tokenizer

TEXT = "def add(a, b):\n    return a + b\n<|endoftext|>\n" * 50


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text(TEXT)
    return path


def test_every_step_leaves_its_result(text, tmp_path, capsys):
    out = tmp_path / "demo"
    line = ["demo", "--out", str(out), "--text", str(text), "--vocab-size", "300"]
    assert main(line) == 0
    shown = capsys.readouterr().out
    tokenizer = Tokenizer.load(out / "tokenizer")
    tokens = TokenFile.open(out / "corpus.tokens", tokenizer.hash)
    assert tokenizer.decode(tokens.ids) == TEXT
    for step in ("1/4  corpus", "2/4  tokenizer", "3/4  ids", "4/4  report"):
        assert step in shown
    assert f"{len(TEXT) / len(tokens):.2f} bytes/token" in shown
    assert main(line) == 0  # again, over what is there


def test_its_advice_works_as_printed(text, tmp_path, capsys):
    main(["demo", "--out", str(tmp_path / "de mo"), "--text", str(text), "--vocab-size", "300"])
    shown = capsys.readouterr().out
    commands = re.findall(r"^    (.* tokenizer .*)$", shown, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        arguments = shlex.split(command)
        assert main(arguments[arguments.index("tokenizer") :]) == 0
        assert capsys.readouterr().out


def test_a_text_that_is_not_there(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--text", str(tmp_path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_built_in_corpus(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert re.search(r"4,096 tokens, 1 of them special", capsys.readouterr().out)
