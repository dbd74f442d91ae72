"""`make test-matrix`: smoke.py from a built wheel, on every CPython, with three sets of packages.

For every CPython from 3.11 on, of pyenv and of the PATH: the versions of requirements.lock, the
newest that the wheel's metadata allows, and the oldest of what it names. torch stays at the lock's
version with the newest ones, or each of its releases would be downloaded with CUDA's gigabytes.
One line per environment; exit code 1 if one of them fails.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
EXTRAS = "train,serve,gguf,parquet"
OLDEST = (3, 11)
MINUTE = 60
UV = [sys.executable, "-m", "uv", "--quiet", "--no-config"]
WHO = "import platform, sys; print(platform.python_implementation(), *sys.version_info[:3])"

Version = tuple[int, ...]


def environment() -> dict[str, str]:
    """That of this process, without what would bring in the checkout; uv looks where pip does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept.pop("VIRTUAL_ENV", None)
    return {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **kept}


def find_pythons() -> dict[Version, Path]:
    """The newest release of each minor version, by version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*pyenv.glob("versions/*/bin"), *map(Path, os.get_exec_path())]
    found: dict[Version, Path] = {}
    for path in (path for folder in folders for path in folder.glob("python3*")):
        if re.fullmatch(r"python3(\.\d+)?", path.name):
            answer = subprocess.run([path, "-I", "-c", WHO], capture_output=True, text=True)
            name, *numbers = answer.stdout.split() or [""]
            version = tuple(map(int, numbers))
            if name == "CPython" and version >= OLDEST:
                found.setdefault(version, path)
    newest = {version[:2]: version for version in sorted(found)}
    return {version: found[version] for version in newest.values()}


def install_flags(versions: str, folder: Path) -> list[str]:
    """What makes uv install one of the three sets."""
    if versions == "oldest":
        # To uv, what a wheel requires is not direct; what a file lists is.
        extras = [word for extra in EXTRAS.split(",") for word in ("--extra", extra)]
        project = ["--requirement", str(ROOT / "pyproject.toml"), *extras]
        return ["--resolution", "lowest-direct", *project]
    if versions == "newest":
        torch = next(line for line in LOCK.read_text().splitlines() if line.startswith("torch=="))
        (folder / "torch.txt").write_text(torch)
        return ["--constraint", str(folder / "torch.txt")]
    return ["--constraint", str(LOCK)]


def try_environment(python: Path, versions: str, wheel: Path) -> tuple[bool, str]:
    """Whether the smoke suite passes, and its last line or all that was said."""
    with tempfile.TemporaryDirectory(prefix="trafo-matrix-") as name:
        folder = Path(name)
        (folder / "work").mkdir()
        own = folder / "env" / "bin" / "python"
        flags = [*install_flags(versions, folder), "--only-binary", ":all:"]
        steps = [
            [*UV, "venv", "--python", str(python), str(folder / "env")],
            [*UV, "pip", "install", "--python", str(own), *flags, f"{wheel}[{EXTRAS}]"],
            [str(own), "-I", str(Path(__file__).with_name("smoke.py"))],
        ]
        variables = {**environment(), "TRAFO_CACHE": str(folder / "cache")}
        for step in steps:
            try:
                done = subprocess.run(
                    step,
                    cwd=folder / "work",
                    env=variables,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    errors="replace",
                    timeout=15 * MINUTE,
                )
            except subprocess.TimeoutExpired as error:
                return False, f"{error}"
            if done.returncode:
                return False, done.stdout
        return True, done.stdout.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one other Python, newest versions")
    parser.add_argument("--python", help="this one alone, such as 3.12")
    parser.add_argument("--versions", nargs="+", default=["lock", "newest", "oldest"])
    options = parser.parse_args()
    pythons = find_pythons()
    if options.python:
        pythons = {v: p for v, p in pythons.items() if options.python == f"{v[0]}.{v[1]}"}
    if options.short:
        other = [v for v in sorted(pythons) if v[:2] != sys.version_info[:2]][-1:]
        pythons, options.versions = {v: pythons[v] for v in other}, ["newest"]
    if not pythons:
        print("matrix  skipped: there is no other CPython from 3.11 on, in pyenv or on the PATH")
        return 0
    failures = 0
    with tempfile.TemporaryDirectory(prefix="trafo-wheel-") as folder:
        build = [*UV, "build", "--wheel", "--out-dir", folder, str(ROOT)]
        subprocess.run(build, check=True, env=environment())
        (wheel,) = Path(folder).glob("*.whl")
        for version, python in pythons.items():
            for versions in options.versions:
                start = time.monotonic()
                passes, said = try_environment(python, versions, wheel)
                failures += not passes
                name = f"Python {'.'.join(map(str, version))}, {versions}"
                taken = f"{time.monotonic() - start:.0f} s"
                print(
                    f"matrix  {name}: {'passes' if passes else 'FAILS'} in {taken}, {said}",
                    flush=True,
                )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
