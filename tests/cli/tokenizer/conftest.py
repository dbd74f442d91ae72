"""A text, a tokenizer of 275 tokens trained on it by the command line, and ways to run a verb."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trafo.cli.main import main
from trafo.tokenizer.reference import encode_reference, train_bpe_reference

END = "<|endoftext|>"


@pytest.fixture(scope="session")
def content() -> str:
    line = "low low low low low lower lower widest widest widest newest newest"
    return f"{line}\n{END}Größe 猫\n" * 9


@pytest.fixture(scope="session")
def text(content, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(content)
    return path


@pytest.fixture(scope="session")
def trained(text, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "tok"
    line = ["tokenizer", "train", str(text), "--out", str(folder), "--vocab-size", "275"]
    assert main(line) == 0
    return folder


@pytest.fixture(scope="session")
def reference(content) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The vocabulary and merges that `trained` should have."""
    return train_bpe_reference(content, 275, [END])


@pytest.fixture(scope="session")
def reference_ids(content, reference) -> list[int]:
    """The ids that `trained` should give to the content."""
    return encode_reference(content, *reference, [END])


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
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
def printed(capsys) -> Callable[..., str]:
    """Runs a command line that must succeed; gives what it prints."""

    def run(*argv: object) -> str:
        capsys.readouterr()
        assert main(["tokenizer", *map(str, argv)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def piped(monkeypatch) -> Callable[[bytes], None]:
    """Puts bytes on stdin."""

    def pipe(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return pipe


@pytest.fixture(scope="session")
def files_in() -> Callable[[Path], dict[str, bytes]]:
    """The name and content of each file in a folder."""

    def read(folder: Path) -> dict[str, bytes]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    return read
