"""Paths and URLs: which is which, what a file system lists, how its errors read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import fsspec
import pytest

from trafo.errors import InputError, MissingPackageError, StorageError
from trafo.runtime.remote import RemotePath, local_copy_of, parse_path, send_folder


@pytest.fixture
def memory() -> str:
    """The URL of an empty folder in fsspec's memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    return "memory://folder"


def write(url: str, content: bytes = b"x") -> None:
    fsspec.filesystem(url.partition(":")[0]).pipe_file(url, content)


@pytest.mark.parametrize(
    "path", ["a.txt", "/a/b", "s3:/bucket", "C:\\text", "a://b".replace(":", ";")]
)
def test_what_has_no_scheme_is_a_path(path: str) -> None:
    assert parse_path(path) == Path(path)


def test_a_file_url_is_a_path_of_this_machine(tmp_path: Path) -> None:
    assert parse_path(f"file://{tmp_path}/a b.txt") == tmp_path / "a b.txt"


def test_a_url_keeps_its_slashes() -> None:
    path = parse_path("s3://bucket/folder/text.txt.gz/")
    assert isinstance(path, RemotePath)
    assert (str(path), path.name, path.suffix) == (
        "s3://bucket/folder/text.txt.gz",
        "text.txt.gz",
        ".gz",
    )


@pytest.mark.parametrize("place", ["memory", "s3"])
def test_a_folder_and_a_glob_mean_files_in_order(
    place: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(place) + "/listing"
    for name in ("b.txt", "a.txt", ".hidden", "sub/c.txt", "sub/.git/d.txt", "e.md"):
        write(f"{root}/{name}")

    def names(url: str) -> list[str]:
        return [str(file).partition("/listing/")[2] for file in RemotePath(url).files()]

    assert names(root) == ["a.txt", "b.txt", "e.md", "sub/c.txt"]
    assert names(f"{root}/*.txt") == ["a.txt", "b.txt"]
    assert names(f"{root}/a.txt") == ["a.txt"]
    assert names(f"{root}/missing") == []


@pytest.mark.parametrize("place", ["memory", "s3"])
def test_a_range_is_that_of_the_bytes(place: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(place) + "/ranges/text"
    content = bytes(range(256))
    write(url, content)
    path = RemotePath(url)
    assert path.read_range(10, 20) == content[10:30]
    assert path.read_range(250, 20) == content[250:]
    assert path.size_and_change()[0] == 256


def test_a_changed_file_has_another_time(memory: str) -> None:
    write(f"{memory}/a", b"1")
    before = RemotePath(f"{memory}/a").size_and_change()
    write(f"{memory}/a", b"2")
    assert RemotePath(f"{memory}/a").size_and_change() != before


@pytest.mark.parametrize("place", ["memory", "s3"])
def test_a_folder_sent_is_the_folder_fetched(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(place) + "/sent"
    for name in ("a", "b", "last"):
        (tmp_path / name).write_text(name)
    (tmp_path / "counts").mkdir()
    send_folder(tmp_path, url, last="last")
    copy = local_copy_of(url)
    assert {file.name: file.read_text() for file in copy.iterdir()} == {
        "a": "a",
        "b": "b",
        "last": "last",
    }
    RemotePath(f"{url}/b").remove()
    (copy / "counts").mkdir()
    assert sorted(file.name for file in local_copy_of(url).iterdir()) == ["a", "counts", "last"]


def test_sending_a_folder_to_itself_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    send_folder(tmp_path, str(tmp_path), last="a")
    assert local_copy_of(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://no/such/file", "no such file or folder"),
        ("nonsense://x", "cannot be read: Protocol not known: nonsense"),
    ],
)
def test_an_error_is_one_line_with_the_url(url: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"{url}: {words}")) as caught:
        RemotePath(url).read_bytes()
    assert "\n" not in str(caught.value)


def test_a_bucket_that_is_missing_cannot_be_written_to(s3: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(StorageError, match="s3://no-such-bucket/a: "):
        RemotePath("s3://no-such-bucket/a").send(tmp_path / "a")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingPackageError, match=r"fsspec; pip install .*\[cluster\]'"):
        RemotePath("memory://x").exists()
