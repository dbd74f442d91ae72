"""The completion script, asked by bash itself."""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from trafo.cli.completion import Options, _commands, script
from trafo.cli.main import main
from trafo.cli.verbs import VERBS, Verb

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trafo; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """What bash offers for the last of these words."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    file = tmp_path_factory.mktemp("completion") / "trafo"
    file.write_text(script())

    def ask(*words):
        command = ["bash", "--norc", "-c", ASK, "bash", str(file), "trafo", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return ask


def test_bash_completes_commands_flags_and_choices(complete):
    assert complete("") == list(VERBS)
    assert complete("tok") == ["tokenizer"]
    assert complete("tokenizer", "") == list(VERBS["tokenizer"].verbs)
    assert complete("tokenizer", "train", "--vo") == ["--vocab-size"]
    assert complete("train", "a.txt", "--optimizer.na") == ["--optimizer.name"]
    assert complete("train", "a.txt", "--optimizer.name", "") == ["adamw", "muon", "sgd"]
    assert complete("generate", "runs/latest", "--kernel", "c") == ["compiled"]
    assert complete("train", "a.t") == []  # files are left to bash


@pytest.mark.parametrize("name", [n for n, v in VERBS.items() if isinstance(v, Verb)])
def test_every_flag_offered_is_one_that_help_shows(name, capsys):
    offered = dict(_commands("trafo", VERBS))[f"trafo-{name}"]
    assert main([name, "--help-all" if name in ("train", "resume") else "--help"]) == 0
    shown = set(re.findall(r"--[a-z][\w.-]*", capsys.readouterr().out))
    assert set(offered) - shown <= {"--debug", "--quiet"}
    assert import_module(VERBS[name].module).Options


def test_the_line_of_the_readme_installs_it_for_new_shells(tmp_path):
    """In an empty home, without the package bash-completion."""
    readme = Path(__file__).parents[2] / "README.md"
    (line,) = re.findall(r"^    (trafo completion bash .*?)  +#", readme.read_text(), re.MULTILINE)
    words = 'trafo() { python -m trafo "$@"; }; ' + line
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    for shell in (
        ["-c", words],
        ["--rcfile", str(tmp_path / ".bashrc"), "-ic", "complete -p trafo"],
    ):
        done = subprocess.run(["bash", *shell], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "-F _trafo trafo" in done.stdout
    assert line in str(Options.__doc__)


def test_the_command_prints_it(capsys):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script()
    assert main(["completion", "tcsh"]) == 2
