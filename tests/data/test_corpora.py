"""The corpus that every Python brings along."""

import ast
import os
import subprocess
import sys

import pytest

from trafo.data.corpora import build_corpus, documents
from trafo.errors import InputError, StorageError
from trafo.tokenizer import END_OF_TEXT


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return build_corpus(tmp_path_factory.mktemp("corpus") / "new")


def test_it_is_large_and_clean_text(corpus):
    text = corpus.read_bytes().decode()
    assert len(text) > 3e6
    assert "\0" not in text
    assert text.endswith(f"\n{END_OF_TEXT}\n")
    assert text.count(END_OF_TEXT) == len(text.split(f"\n{END_OF_TEXT}\n")) - 1
    assert sorted(path.name for path in corpus.parent.iterdir()) == [corpus.name]


def test_sources_and_documentation_are_whole_documents(corpus):
    parts = corpus.read_text().split(f"\n{END_OF_TEXT}\n")
    assert ast.__doc__ in "".join(parts)
    with open(ast.__file__) as file:  # noqa: PTH123
        assert file.read().strip() in parts
    assert any(part.startswith('The "assert" statement') for part in parts)


def test_another_process_writes_the_same_bytes(corpus, tmp_path):
    code = f"from trafo.data.corpora import build_corpus; build_corpus({str(tmp_path)!r})"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert (tmp_path / corpus.name).read_bytes() == corpus.read_bytes()


def test_what_is_there_is_not_written_again(tmp_path, corpus):
    there = tmp_path / corpus.name
    there.write_text("as it was")
    assert build_corpus(tmp_path) == there
    assert there.read_text() == "as it was"


def test_what_is_taken_and_what_is_left_out(tmp_path):
    files = {
        "b.py": "two",
        "a/z.py": "one",
        "test/t.py": "no",
        "x/tests/t.py": "no",
        "encodings/cp437.py": "no",
        "site-packages/p.py": "no",
        "_sysconfigdata_linux.py": "no",
        "notes.txt": "no",
        "c.py": f"no, it has {END_OF_TEXT} itself",
        "d.py": "\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.py").write_bytes("# é".encode("latin-1"))
    found = list(documents(tmp_path))
    assert {"one", "two"} <= set(found)
    assert not any(document.startswith("no") for document in found)
    assert found == list(documents(tmp_path))


def test_any_part_is_like_the_whole(corpus):
    """What is code and what is prose must not stand apart: the end is held out in training."""
    parts = corpus.read_text().split(END_OF_TEXT)
    code = ["import " in part for part in parts]
    share = sum(code) / len(code)
    for quarter in range(4):
        here = code[quarter * len(code) // 4 : (quarter + 1) * len(code) // 4]
        assert abs(sum(here) / len(here) - share) < 0.1


def test_a_python_without_sources(tmp_path):
    with pytest.raises(InputError, match="came without the source code"):
        list(documents(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        build_corpus(tmp_path / "file" / "folder")
