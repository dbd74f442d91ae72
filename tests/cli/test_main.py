"""The shell around the verbs, tried with verbs made for the purpose."""

import os
import subprocess
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

import trafo
from trafo.cli.main import main
from trafo.cli.verbs import VERBS, Group, Verb
from trafo.errors import InputError
from trafo.runtime import progress

HEAVY = ("yaml", "rich", "numpy", "numba", "torch", "regex")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Do as told."""

    times: int = 3
    """how often"""


TABLE = {
    "act": Verb("fake_act", "do something"),
    "group": Group("many things", {"inner": Verb("fake_act", "something within")}),
}


@pytest.fixture
def act(monkeypatch):
    """Make the fake verb do `run`, and the command line find it."""

    def install(run):
        module = ModuleType("fake_act")
        module.Options, module.run = Options, run
        monkeypatch.setitem(sys.modules, "fake_act", module)

    return install


def fail_with(error):
    def run(_options):
        raise error

    return run


def test_a_verb_gets_its_options_and_gives_the_exit_code(act):
    seen = []
    act(lambda options: seen.append(options.times))
    assert main(["act", "--times", "5"], table=TABLE) == 0
    assert main(["group", "inner"], table=TABLE) == 0
    assert seen == [5, 3]
    act(lambda _options: 7)
    assert main(["act"], table=TABLE) == 7


def test_help_of_a_verb_shows_its_path_flags_and_defaults(act, capsys):
    act(fail_with(AssertionError("help must not run the verb")))
    assert main(["group", "inner", "--help"], table=TABLE) == 0
    shown = capsys.readouterr().out
    for words in ("trafo group inner", "Do as told.", "--times", "how often", "3"):
        assert words in shown


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["--help", "--debug"]])
def test_listing(argv, capsys):
    assert main(argv, table=TABLE) == 0
    shown = capsys.readouterr().out
    for words in ("usage: trafo COMMAND", "act", "do something", "group", "many things"):
        assert words in shown
    assert "global options:\n  --help     show this help and exit\n" in shown
    assert "import" not in shown  # lines of Python from the package's docstring


@pytest.mark.parametrize("argv", [["group"], ["group", "--help"]])
def test_listing_of_a_group(argv, capsys):
    assert main(argv, table=TABLE) == 0
    shown = capsys.readouterr().out
    assert "usage: trafo group COMMAND" in shown
    assert "something within" in shown
    assert "do something" not in shown


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"trafo {trafo.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["atc"], "unknown command `trafo atc`; did you mean act?"),
        (["zzz"], "unknown command `trafo zzz`; choose one of act, group"),
        (["group", "iner"], "unknown command `trafo group iner`; did you mean inner?"),
        (["--tims", "act"], "unknown flag --tims; flags of a command come after it"),
        (["act", "--tims", "5"], "unknown flag --tims; did you mean --times?"),
        (["act", "stray"], "unexpected argument 'stray'; see --help"),
    ],
)
def test_a_mistyped_line_is_answered_in_one_line(act, capsys, argv, line):
    act(fail_with(AssertionError("the verb must not run")))
    assert main(argv, table=TABLE) == 2
    assert capsys.readouterr() == ("", f"error: {line}\n")


def test_a_value_of_the_wrong_type(act, capsys):
    act(fail_with(AssertionError("the verb must not run")))
    assert main(["act", "--times", "often"], table=TABLE) == 2
    assert capsys.readouterr().err == "error: --times: expected int, got 'often'\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("is empty", where="a.txt"), 2, "error: a.txt: is empty"),
        (FileNotFoundError(2, "No such file", "b.txt"), 2, "error: b.txt: no such file"),
        (MemoryError(), 2, "error: out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyError("x"), 1, "error: this is a bug in trafo, --debug shows where: KeyError: 'x'"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(act, capsys, error, code, line):
    act(fail_with(error))
    assert main(["act"], table=TABLE) == code
    assert capsys.readouterr() == ("", f"{line}\n")


@pytest.mark.parametrize("argv", [["--debug", "act"], ["act", "--debug"]])
@pytest.mark.parametrize("error", [InputError("is empty"), KeyError("x")])
def test_debug_anywhere_shows_the_traceback(act, capsys, argv, error):
    act(fail_with(error))
    main(argv, table=TABLE)
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(("argv", "quiet"), [(["act", "--quiet"], True), (["act"], False)])
def test_quiet_anywhere_silences_progress(act, argv, quiet):
    seen = []
    act(lambda _options: seen.append(progress._quiet))
    main(argv, table=TABLE)
    progress.set_quiet(False)
    assert seen == [quiet]


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["tokenizer", "--help"], ["tokenzer"]])
def test_listing_imports_nothing_heavy(argv):
    code = (
        "import sys; from trafo.cli.main import main\n"
        f"main({argv!r})\n"
        "sys.stdout.write(' '.join(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    imported = result.stdout.splitlines()[-1].split()
    assert "trafo.cli.main" in imported
    assert not set(HEAVY) & set(imported)


def test_python_m_trafo_passes_the_exit_code_on():
    command = [sys.executable, "-m", "trafo", "nonsense"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 2


def test_a_reader_that_goes_away_is_no_error():
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "trafo", "--help"], check=False, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


def test_every_registered_module_follows_its_verb():
    for name, entry in VERBS.items():
        if isinstance(entry, Verb):
            assert entry.module == f"trafo.cli.{name.replace(chr(45), chr(95))}"
        else:
            modules = {verb: inner.module for verb, inner in entry.verbs.items()}
            assert modules == {verb: f"trafo.cli.{name}.{verb}" for verb in modules}


def test_switches_of_a_training_take_true_and_false():
    from trafo.cli.train import Options
    from trafo.config import parse_flags

    flags = ["--model.tied-head", "true", "--watch.tensorboard", "false", "book.txt"]
    options = parse_flags(Options, flags)
    assert (options.model.tied_head, options.watch.tensorboard) == (True, False)
    assert options.text == ("book.txt",)
