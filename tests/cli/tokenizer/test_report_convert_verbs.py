"""`trafo tokenizer report` and `convert`: what they print, write, and refuse."""

import json
import re

import pytest
from tokenizers import Tokenizer as HuggingFace

from trafo.cli.tokenizer.convert import SAMPLE
from trafo.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"


# report


def test_report(trained, text, printed, content, reference_ids):
    shown = printed("report", trained, text)
    assert re.search(rf"bytes per token +{len(content.encode()) / len(reference_ids):.2f}\n", shown)
    assert re.search(rf"tokens +{len(reference_ids)}\n", shown)


def test_report_as_json(trained, text, printed):
    facts = json.loads(printed("report", trained, text, "--json", "--top", 3))
    assert facts["tokenizer"] == str(trained)
    assert facts["hash"] == Tokenizer.load(trained).hash
    assert len(facts["longest"]) == len(facts["most_frequent"]) == 3
    both = json.loads(printed("report", trained, text, "--json", "--compare", trained))
    assert [report["total"] for report in both] == [facts["total"]] * 2


def test_report_compares_and_shows_tokens(trained, text, tmp_path, printed, content):
    printed("train", text, "--out", tmp_path / "small", "--vocab-size", 258)
    shown = printed("report", trained, text, "--compare", tmp_path / "small", "--show", 8)
    assert re.search(r"tokens in the vocabulary +275 +258 +-6.2 %", shown)
    first, second = shown.splitlines()[0], shown.splitlines()[2]
    assert first.replace("|", "") == second.replace("|", "") == content[:8]
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
def test_convert_there_and_back(trained, tmp_path, printed, name, flags, content):
    out = tmp_path / name
    assert "read back with the same ids" in printed("convert", trained, out, *flags)
    back = tmp_path / "back"
    printed("convert", out, back, "--pattern", "gpt2", "--special-tokens", END)
    sample = SAMPLE + content
    assert Tokenizer.load(back).encode(sample) == Tokenizer.load(trained).encode(sample)


def test_convert_says_what_a_format_leaves_out(trained, tmp_path, printed):
    shown = printed("convert", trained, tmp_path / "x.tiktoken")
    assert "not in this format: the pattern, gpt2" in shown
    assert f"{END} = 274" in shown


def test_hugging_face_reads_what_convert_writes(trained, tmp_path, printed, content):
    printed("convert", trained, tmp_path / "tokenizer.json")
    peer = HuggingFace.from_file(str(tmp_path / "tokenizer.json"))
    assert peer.encode(SAMPLE + content).ids == Tokenizer.load(trained).encode(SAMPLE + content)


def test_convert_refuses(trained, tmp_path, refused, files_in):
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
    assert len(Tokenizer.load(tmp_path / "there.json").vocab) == 275
