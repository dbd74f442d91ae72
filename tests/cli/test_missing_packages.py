"""Without the extras: every command works, or names in one line the extra that it needs."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from trafo.cli.verbs import VERBS, Group
from trafo.errors import install_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def name_of(requirement: str) -> str:
    """The distribution that a requirement names, as metadata spells it."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found[0].lower().replace("_", "-")


# Extra of each package that only an extra brings; tests and peers are for developers.
EXTRA_OF = {
    name_of(requirement): extra
    for extra, requirements in EXTRAS.items()
    if extra not in ("dev", "peers")
    for requirement in requirements
}

PROGRAM = """
import contextlib, io, json, sys
commands, hidden = json.loads(sys.stdin.read())

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
from trafo.cli.main import main
for argv in commands:
    sys.stdin, out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(3))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    err.flush()
    print(json.dumps([code, err.buffer.getvalue().decode()]))
"""


def write_metadata(folder: Path, origin: object = None) -> str:
    """What pip would write of this pyproject.toml; the folder, to be searched before others."""
    info = folder / "trafo-9.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", "Name: trafo", "Version: 9"]
    lines += [f"Requires-Dist: {requirement}" for requirement in PROJECT["dependencies"]]
    for extra, requirements in EXTRAS.items():
        for name, _, marker in (requirement.partition("; ") for requirement in requirements):
            condition = f"({marker}) and extra" if marker else "extra"
            lines.append(f"Requires-Dist: {name}; {condition} == '{extra}'")
    (info / "METADATA").write_text("\n".join([*lines, ""]))
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return str(folder)


def run_without(hidden: list[str], folder: Path, *commands: list[str]) -> list[tuple[int, str]]:
    """Exit code and stderr of commands in one new process that cannot import `hidden`."""
    paths = [write_metadata(folder / "installed"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([commands, hidden]),
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "TRAFO_CACHE": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


# Arguments of every command, and the extra that it needs.
COMMANDS: dict[str, tuple[list[str], str | None]] = {
    "demo": ([], "train"),
    "tokenizer train": (["text.txt", "--vocab-size", "270", "--out", "tok", "--quiet"], None),
    "tokenizer encode": (["tok", "--text", "the cat"], None),
    "tokenizer decode": (["tok", "97", "98"], None),
    "tokenizer report": (["tok", "text.txt"], None),
    "tokenizer convert": (["tok", "copy"], None),
    "train": (["text.txt"], "train"),
    "resume": (["run"], "train"),
    "eval": (["run", "text.txt"], "train"),
    "translate": (["run"], "train"),
    "score": (["text.txt", "text.txt"], "train"),
    "generate": (["run"], "train"),
    "serve": (["run"], "serve"),
    "chat": (["run"], "train"),
    "export": (["run", "--out", "model.gguf"], "train"),
    "average": (["run"], "train"),
    "runs": (["run"], None),
    "plot": (["run"], "train"),
    "experiment": (["arms.yaml", "text.txt"], "train"),
    "verify-resume": (["recipe.yaml"], "train"),
    "completion": (["bash"], "train"),
    "account": (["gpt2"], "train"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 20)
    (tmp_path / "arms.yaml").write_text("arms: {a: {}, b: {}}\n")
    (tmp_path / "recipe.yaml").write_text("steps: 2\n")
    (tmp_path / "run").mkdir()
    return tmp_path


def test_every_command_says_which_extra_it_needs(folder: Path) -> None:
    names = [
        f"{name} {sub}".strip()
        for name, entry in VERBS.items()
        for sub in (entry.verbs if isinstance(entry, Group) else [""])
    ]
    assert sorted(COMMANDS) == sorted(names)
    commands = [[*name.split(), *arguments] for name, (arguments, _) in COMMANDS.items()]
    hidden = [name.replace("-", "_") for name in EXTRA_OF]
    answers = run_without(hidden, folder, *commands)
    for (name, (_, extra)), (code, said) in zip(COMMANDS.items(), answers, strict=True):
        if extra is None:
            assert (code, "error" in said) == (0, False), (name, said)
        else:
            line = rf"error: this command needs the package \w+; pip install .*\[{extra}\]'\n"
            assert code == 2, (name, said)
            assert re.fullmatch(line, said), (name, said)


def test_what_one_file_or_flag_needs_is_said_with_its_extra(folder: Path) -> None:
    (folder / "text.parquet").write_bytes(b"")
    (folder / "model.gguf").write_bytes(b"GGUF")
    train = ["tokenizer", "train", "--vocab-size", "270", "--out", "tok"]
    parquet, ray, url, gguf = run_without(
        ["pyarrow", "ray", "fsspec", "gguf"],
        folder,
        [*train, "text.parquet"],
        [*train, "text.txt", "--on", "ray"],
        [*train, "s3://bucket/text.txt"],
        ["generate", "model.gguf"],
    )
    for (code, said), package, extra in [
        (parquet, "pyarrow", "parquet"),
        (ray, "ray", "cluster"),
        (url, "fsspec", "cluster"),
        (gguf, "gguf", "gguf"),
    ]:
        assert code == 2
        assert re.fullmatch(rf"error: .*the package {package}; pip install .*\[{extra}\]'\n", said)


ORIGINS = [
    ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, "-e '/a b/c[{}]'"),
    ({"url": "file:///a/c", "dir_info": {}}, "'/a/c[{}]'"),
    ({"url": "file:///t-1-py3-none-any.whl", "archive_info": {}}, "'/t-1-py3-none-any.whl[{}]'"),
    (None, "'trafo[{}]'"),
]


@pytest.mark.parametrize(("origin", "source"), ORIGINS)
def test_the_command_names_the_extra_of_each_package_and_where_trafo_came_from(
    origin: object, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write_metadata(tmp_path, origin))
    for name, extra in EXTRA_OF.items():
        assert install_command(name.replace("-", "_")) == f"pip install {source.format(extra)}"
    for name in ("numpy", "wandb", "data"):
        assert install_command(name) == f"pip install {name}"


# What trafo uses where it is, and does without where it is not.
NOT_REQUIRED = {"IPython", "wandb"}


def imports_of(path: Path) -> set[str]:
    """Top-level names that a module imports, those for type checkers aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hints = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    hints = [node for node in hints if ast.unparse(node.test) == "TYPE_CHECKING"]
    skipped = {child for node in hints for child in ast.walk(node)}
    names: set[str] = set()
    for node in set(ast.walk(tree)) - skipped:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names - {"trafo", *sys.stdlib_module_names}


def test_every_package_that_is_imported_is_declared() -> None:
    """In the dependencies, and if only an extra brings it, nowhere that works without."""
    declared = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    used = {
        module: path for path in sorted((ROOT / "src").rglob("*.py")) for module in imports_of(path)
    }
    distributions = metadata.packages_distributions()
    missing = {
        module: str(path.relative_to(ROOT))
        for module, path in used.items()
        if module not in NOT_REQUIRED
        and not {name.lower().replace("_", "-") for name in distributions[module]}
        & (declared | EXTRA_OF.keys())
    }
    assert missing == {}
