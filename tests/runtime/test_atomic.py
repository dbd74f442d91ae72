"""Old content survives every way in which writing can fail."""

import errno
import os
import resource
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from trafo.errors import StorageError
from trafo.runtime import atomic
from trafo.runtime.atomic import (
    LOCK,
    atomic_folder,
    atomic_write,
    exchange,
    exchange_by_renaming,
    lock_folder,
    remove_leftovers_in,
    storage_errors,
)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "vocab.json"
    path.write_bytes(b"old")
    return path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_new_content_replaces_the_old(old):
    with atomic_write(old) as file:
        file.write(b"new")
        assert old.read_bytes() == b"old"
    assert old.read_bytes() == b"new"
    assert names(old.parent) == ["vocab.json"]


def test_text_is_utf8_with_plain_newlines(tmp_path):
    with atomic_write(tmp_path / "a.txt", "w") as file:
        file.write("naïve\n")
    assert (tmp_path / "a.txt").read_bytes() == "naïve\n".encode()


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with atomic_write(tmp_path / "atomic"):
        pass
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_symbolic_link_stays_a_link(old):
    link = old.with_name("link")
    link.symlink_to(old)
    with atomic_write(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert old.read_bytes() == b"new"


def test_names_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("ü" * 127)
    with atomic_write(path) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


def write_and_fail(path: Path, error: type[BaseException]) -> None:
    with atomic_write(path) as file:
        file.write(b"half of the n")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_block_keeps_the_old_file(old, error):
    with pytest.raises(error):
        write_and_fail(old, error)
    assert old.read_bytes() == b"old"
    assert names(old.parent) == ["vocab.json"]


def test_a_file_too_large_keeps_the_old_file(old):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match="too large while writing") as caught:  # noqa: SIM117
            with atomic_write(old) as file:
                file.write(b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(caught.value.__cause__, OSError)
    assert old.read_bytes() == b"old"
    assert names(old.parent) == ["vocab.json"]


def test_a_full_disk_noticed_only_at_fsync_keeps_the_old_file(old, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError) as caught, atomic_write(old) as file:
        file.write(b"new")
    assert str(caught.value) == (
        f"{old}: no space left on device while writing; "
        "free some space and run again, nothing was lost"
    )
    assert old.read_bytes() == b"old"
    assert names(old.parent) == ["vocab.json"]


def test_the_system_itself_says_that_the_disk_is_full():
    with (
        pytest.raises(StorageError, match="no space left on device"),
        storage_errors("out.bin"),
        Path("/dev/full").open("wb", buffering=0) as file,
    ):
        file.write(b"x")


def test_missing_folder_and_folder_instead_of_file(tmp_path):
    with pytest.raises(StorageError, match="the folder must exist"):  # noqa: SIM117
        with atomic_write(tmp_path / "no" / "such" / "file"):
            pass
    with pytest.raises(StorageError, match="give the name of a file"), atomic_write(tmp_path):
        pytest.fail("the block must not run")


def test_reading_another_file_in_the_block_is_not_our_error(old):
    other = old.with_name("missing")
    with pytest.raises(FileNotFoundError) as caught, atomic_write(old):
        other.read_bytes()
    assert not isinstance(caught.value, StorageError)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_each_refusal_comes_with_advice(code):
    with pytest.raises(StorageError) as caught, storage_errors("a/b", "reading"):
        raise OSError(code, os.strerror(code), "a/b")
    assert os.strerror(code).lower() + " while reading" in str(caught.value)
    assert caught.value.hint


def test_a_broken_pipe_stays_one():
    with pytest.raises(BrokenPipeError), storage_errors("out"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


KILLED_WHILE_WRITING = """
import sys, time
from trafo.runtime.atomic import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half of the n")
    file.flush()
    sys.stdout.write("writing"); sys.stdout.flush()
    time.sleep(60)
"""


def test_kill_in_the_middle_keeps_the_old_file(old):
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(old)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.read(7) == b"writing"
        process.send_signal(signal.SIGKILL)
    assert old.read_bytes() == b"old"
    assert [name for name in names(old.parent) if not name.startswith(".")] == ["vocab.json"]
    with atomic_write(old) as file:
        file.write(b"new")
    assert old.read_bytes() == b"new"


def write_folder(path: Path, content: str, extra: str | None = None) -> None:
    with atomic_folder(path, marker="manifest") as folder:
        (folder / "manifest").write_text(content)
        if extra:
            (folder / "deep").mkdir()
            (folder / "deep" / extra).write_text(content)


def test_a_folder_appears_and_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "tokenizer"
    write_folder(path, "first", extra="only in the first")
    assert (path / "deep" / "only in the first").read_text() == "first"
    write_folder(path, "second")
    assert names(path) == ["manifest"]
    assert (path / "manifest").read_text() == "second"
    assert names(tmp_path) == ["tokenizer"]


def test_an_error_keeps_the_old_folder(tmp_path):
    path = tmp_path / "tokenizer"
    write_folder(path, "first")
    with pytest.raises(StorageError, match="is a directory"):
        write_folder(path, "second", extra=".")
    assert (path / "manifest").read_text() == "first"
    assert names(tmp_path) == ["tokenizer"]


def test_a_foreign_folder_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageError, match="refusing to replace"):
        write_folder(tmp_path, "new")
    assert names(tmp_path) == ["thesis.tex"]


def test_an_empty_folder_is_replaced_and_a_file_is_not(tmp_path):
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", "new")
    assert names(tmp_path / "empty") == ["manifest"]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="expected a folder"):
        write_folder(tmp_path / "file", "new")


def test_a_folder_without_its_marker_is_a_bug(tmp_path):
    with pytest.raises(AssertionError, match="manifest"):  # noqa: SIM117
        with atomic_folder(tmp_path / "a", marker="manifest"):
            pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("swap", [exchange, exchange_by_renaming])
def test_exchange(tmp_path, swap):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"was {name}").touch()
    swap(tmp_path / "a", tmp_path / "b")
    assert names(tmp_path / "a") == ["was b"]
    assert names(tmp_path / "b") == ["was a"]
    assert names(tmp_path) == ["a", "b"]


def test_renaming_is_undone_if_it_cannot_be_finished(tmp_path):
    (tmp_path / "b").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange_by_renaming(tmp_path / "missing", tmp_path / "b")
    assert names(tmp_path) == ["b"]


def test_leftovers_are_known_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / ".step-1.0123456789ab.tmp"
    folder.mkdir()
    (folder / "half").touch()
    leftovers = [".a.txt.0123456789ab.tmp", ".a.tokens.partial", ".a.tokens.partial.documents"]
    mine = ["a.0123456789ab.tmp", ".a.tmp", ".notes.partial.txt", "partial"]
    for name in leftovers + mine:
        (tmp_path / name).touch()
    (tmp_path / ".link.0123456789ab.tmp").symlink_to(tmp_path / "partial")
    remove_leftovers_in(tmp_path, untouched_for=60)
    assert len(list(tmp_path.iterdir())) == 9
    remove_leftovers_in(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(mine)
    remove_leftovers_in(tmp_path / "nowhere")


def test_a_folder_that_may_not_be_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with atomic_folder(path, marker="a", replace=False) as new:
        (new / "a").write_text("first")
    with pytest.raises(StorageError), atomic_folder(path, marker="a", replace=False) as new:
        (new / "a").write_text("second")
    assert (path / "a").read_text() == "first"
    assert [inside.name for inside in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_killed_writers_left_is_removed_by_the_next_but_not_what_is_being_written(
    tmp_path: Path, is_folder: bool
) -> None:
    target = tmp_path / "model.gguf"

    def write() -> AbstractContextManager[Any]:
        return atomic_folder(target, marker="a") if is_folder else atomic_write(target)

    def fill(new: Any) -> None:
        (new / "a").touch() if is_folder else new.write(b"a")

    dead, other = (tmp_path / f".{name}.{'0' * 12}.tmp" for name in ("model.gguf", "other"))
    for leftover in (dead, other):
        leftover.mkdir() if is_folder else leftover.touch()
        os.utime(leftover, (1, 1))
    with write() as slow:
        fill(slow)
        assert not dead.exists()
        (living,) = [p for p in tmp_path.iterdir() if p.name.startswith(".model")]
        os.utime(living, (1, 1))  # slow, but alive
        with write() as fast:
            fill(fast)
        assert living.exists()
    assert {path.name for path in tmp_path.iterdir()} == {target.name, other.name}


def test_a_locked_folder_belongs_to_one_at_a_time(tmp_path):
    with lock_folder(tmp_path):
        with pytest.raises(StorageError, match="is being written by another process"):
            lock_folder(tmp_path).__enter__()
        assert (tmp_path / LOCK).exists()
    with lock_folder(tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EBADF])
def test_network_file_systems_without_locks_can_be_written(tmp_path, monkeypatch, code):
    """Some have none, and some refuse to lock what is open for reading only, as folders are."""

    def refuse(descriptor, *, blocking):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic, "lock_descriptor", refuse)
    leftover = tmp_path / ".a.0123456789ab.tmp"  # perhaps of a living writer
    leftover.touch()
    os.utime(leftover, (0, 0))
    with atomic_write(tmp_path / "a", "w") as file:
        file.write("text")
    with atomic_folder(tmp_path / "b", marker="manifest") as folder:
        (folder / "manifest").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [leftover.name, "a", "b"]
    if code == errno.ENOLCK:
        with lock_folder(tmp_path):
            pass
