"""README, CONTRIBUTING and docs: what they name is there, and what they claim is in the table."""

import ast
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "trafo"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

IMPORT = re.compile(r"^from (trafo[\w.]*) import ([\w, ]+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# With a folder and one of our endings, such as `nn/norm.py`; what a run makes is not ours.
FILE = re.compile(r"`(\w+\.(?:py|yaml))`")
MODULE = re.compile(r"`(trafo\.[\w.]+)`")
PATH = re.compile(r"(?<![\w./:-])((?!runs/|\.)[\w.-]+/[\w./-]*\w\.(?:py|yaml|md|png|json))\b")

THEIRS = {"config.yaml", "model.yaml", "small.yaml"}
"""files that users have"""


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(without_code(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_what_the_docs_import_is_there(page: Path) -> None:
    for module, names in IMPORT.findall(page.read_text()):
        for name in names.split(","):
            assert hasattr(import_module(module), name.strip()), f"{module}.{name.strip()}"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(without_code(page.read_text())):
        path, _, anchor = link.partition("#")
        if link.startswith(("https://", "http://")):
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    for name in set(PATH.findall(page.read_text())):
        places = [ROOT, SOURCE, page.parent, SOURCE / "tokenizer"]
        assert any((place / name).is_file() for place in places), name


@every_page
def test_names_in_backticks_are_there(page: Path) -> None:
    """A file without its folder, and a module or a public name with its package."""
    text = page.read_text()
    for name in set(FILE.findall(text)) - THEIRS:
        assert any(ROOT.glob(f"*/{name}")) or any(SOURCE.rglob(name)), name
    for name in set(MODULE.findall(text)):
        place = name.removeprefix("trafo.").replace(".", "/")
        if not (SOURCE / place).exists() and not (SOURCE / f"{place}.py").exists():
            module, _, last = name.rpartition(".")
            assert hasattr(import_module(module), last), name


@cache
def definitions(path: Path) -> set[str]:
    """Functions, classes and methods of a file, such as `Engine.step`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
    return found


def walk() -> list[tuple[int, str, str]]:
    """Depth, file and function of each line of the walk through the code."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    lines = re.findall(r"^( *)([\w/]+\.py) +([\w.]+)", text, re.MULTILINE)
    return [(len(indent), path, name) for indent, path, name in lines]


def test_each_step_of_the_walk_is_called_by_the_one_above_it() -> None:
    steps = walk()
    assert len(steps) > 30
    above: list[tuple[int, str]] = []
    for depth, path, name in steps:
        assert name in definitions(SOURCE / path), f"{path} has no {name}"
        above = [(least, file) for least, file in above if least < depth]
        # An object that is called has another name there.
        if above and not name.endswith(("__", ".forward")):
            caller = (SOURCE / above[-1][1]).read_text()
            assert re.search(rf"\b{name.split('.')[-1]}\b", caller), f"{above[-1][1]}: {name}"
        above.append((depth, path))


def test_the_chart_shows_rows_of_the_table() -> None:
    table = (ROOT / "docs" / "benchmarks.md").read_text()
    for bar in json.loads((ROOT / "docs" / "speed.json").read_text()):
        ratio = f"| **{bar['ratio']} x** | {bar['low']} to {bar['high']} |"
        assert ratio in table, bar["label"]
        assert (ROOT / bar["script"]).is_file()


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200
