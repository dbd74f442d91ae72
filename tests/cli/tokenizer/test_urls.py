"""The verbs on URLs give what they give on files: memory://, file://, and a real S3 protocol."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from trafo.cli.main import main
from trafo.tokenizer import TokenFile, Tokenizer

END = "<|endoftext|>"


@pytest.fixture(params=["memory", "s3", "file"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty folder."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}"


def put(url: str, content: bytes) -> None:
    system, path = fsspec.core.url_to_fs(url)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    system.pipe_file(path, content)


def files_at(url: str) -> dict[str, bytes]:
    system, path = fsspec.core.url_to_fs(url)
    system.invalidate_cache()
    return {
        name.rpartition("/")[2]: system.cat_file(name) for name in system.find(path, maxdepth=1)
    }


def test_a_tokenizer_from_and_to_a_url(text, trained, root, printed):
    put(f"{root}/text.txt", text.read_bytes())
    line = ("train", f"{root}/*.txt", "--out", f"{root}/tok", "--vocab-size", "275")
    shown = printed(*line)
    assert f"saved in {root}/tok" in shown
    there = files_at(f"{root}/tok")
    for name in ("vocab.json", "merges.txt", "tokenizer.json"):
        assert there[name] == (trained / name).read_bytes()
    ours, other = json.loads(there["trafo.json"]), json.loads((trained / "trafo.json").read_text())
    assert ours["content_hash"] == other["content_hash"]
    assert "bytes per token" in printed("report", f"{root}/tok", f"{root}/text.txt")
    assert printed(*line) != ""  # once more: nothing is refused, it is the same training


def test_another_tokenizer_at_the_url_stays(text, root, printed, refused):
    put(f"{root}/text.txt", text.read_bytes())
    printed("train", f"{root}/text.txt", "--out", f"{root}/tok", "--vocab-size", "275")
    said = refused("train", f"{root}/text.txt", "--out", f"{root}/tok", "--vocab-size", "280")
    assert "trained differently" in said
    assert len(Tokenizer.load(f"{root}/tok").vocab) == 275


def test_a_token_file_from_and_to_a_url(text, trained, root, printed, tmp_path):
    put(f"{root}/text.txt", text.read_bytes())
    printed("encode", trained, text, "--out", tmp_path / "x.tokens")
    line = ("encode", trained, f"{root}/text.txt", "--out", f"{root}/out/x.tokens")
    assert f"written to {root}/out/x.tokens" in printed(*line)
    there = files_at(f"{root}/out")
    for name in ("x.tokens", "x.tokens.documents"):
        assert there[name] == (tmp_path / name).read_bytes()
    assert "up to date" in printed(*line)
    shown = printed("decode", trained, "--tokens", f"{root}/out/x.tokens")
    assert shown == text.read_text()
    assert TokenFile.open(f"{root}/out/x.tokens").verify()


def test_a_copy_follows_what_is_at_the_url(text, trained, root, printed, tmp_path):
    (tmp_path / "first.txt").write_text("low low")
    out = f"{root}/out/x.tokens"
    printed("encode", trained, tmp_path / "first.txt", "--out", out)
    before = files_at(f"{root}/out")
    printed("encode", trained, text, "--out", out)
    for name, content in before.items():  # as another machine would put it there
        put(f"{root}/out/{name}", content)
    assert printed("decode", trained, "--tokens", out) == "low low"


def test_every_kind_of_file_is_read_through_a_url(trained, root, printed, tmp_path):
    texts = ["low lower", "newest 猫", "", "widest low"] * 50
    records = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "d.parquet")
    kinds = {
        "a.txt.gz": gzip.compress(" ".join(texts).encode()),
        "b.jsonl": records,
        "c.jsonl.gz": gzip.compress(records),
        "d.parquet": (tmp_path / "d.parquet").read_bytes(),
    }
    (tmp_path / "in").mkdir()
    for name, content in kinds.items():
        (tmp_path / "in" / name).write_bytes(content)
        put(f"{root}/all/{name}", content)
    for source, out in ((tmp_path / "in", "here"), (f"{root}/all", "there")):
        printed("encode", trained, source, "--out", tmp_path / out, "--end-of-document", END)
    for suffix in ("", ".documents"):
        assert (tmp_path / f"there{suffix}").read_bytes() == (
            tmp_path / f"here{suffix}"
        ).read_bytes()


def test_a_damaged_archive_at_a_url_is_named(trained, root, refused, tmp_path):
    put(f"{root}/cut.gz", gzip.compress(b"low " * 1000)[:-9])
    said = refused("encode", trained, f"{root}/cut.gz", "--out", tmp_path / "x.tokens")
    assert "cut.gz: the compressed file ends too early" in said


@pytest.mark.parametrize("where", ["missing.txt", "*.txt", "tok"])
def test_what_is_not_there_is_named(root, refused, tmp_path, where):
    said = refused("train", f"{root}/no/{where}", "--out", tmp_path / "tok", "--vocab-size", "300")
    assert f"no/{where}: no" in said


def test_a_file_that_is_not_a_token_file_stays(text, trained, root, refused):
    put(f"{root}/notes", b"mine")
    assert "not a token file" in refused("encode", trained, text, "--out", f"{root}/notes")
    assert files_at(root)["notes"] == b"mine"


def test_an_unknown_protocol_is_one_line(refused, tmp_path):
    assert "Protocol not known" in refused(
        "train", "nope://x", "--out", tmp_path, "--vocab-size", "300"
    )
    assert main(["tokenizer", "report", "nope://x", "nope://y"]) == 2
