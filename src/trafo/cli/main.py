"""The command line: find the command, parse its options, run it, report an error in one line.

Exit codes: 0 done, 1 a bug of ours, 2 something the user can fix, 130 interrupted, 141 the reader
of our output went away. Nothing heavy is imported before the command is known.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

import trafo
from trafo.cli.verbs import VERBS, Group, Table, Verb
from trafo.errors import ConfigError, TrafoError, did_you_mean, missing_package
from trafo.runtime.progress import set_quiet

DONE, BUG, REFUSED, INTERRUPTED, READER_GONE = 0, 1, 2, 130, 141

GLOBAL_OPTIONS = {
    "--help": "show this help and exit",
    "--version": "show the version and exit",
    "--debug": "show the traceback of an error",
    "--quiet": "show no progress",
}


def main(argv: Sequence[str] | None = None, *, table: Table = VERBS) -> int:
    """Run one command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = _take(arguments, "--debug")
    set_quiet(_take(arguments, "--quiet"))
    try:
        code = _dispatch(arguments, table)
        sys.stdout.flush()  # here a reader that went away can still be noticed
        return code
    except BrokenPipeError:
        return _reader_gone()
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _complain(*_answer(error))


def _dispatch(arguments: list[str], table: Table) -> int:
    prog, description, entries = "trafo", _first_line(trafo.__doc__), table
    while arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        entry = _find(name, entries, prog)
        prog = f"{prog} {name}"
        if isinstance(entry, Verb):
            return _run(entry, arguments, prog)
        description, entries = entry.description, entry.verbs
    return _answer_without_command(arguments, _help(prog, description, entries))


def _first_line(docstring: str | None) -> str:
    return (docstring or "").partition("\n")[0]


def _find(name: str, entries: Table, prog: str) -> Verb | Group:
    if name in entries:
        return entries[name]
    raise ConfigError(f"unknown command `{prog} {name}`", hint=did_you_mean(name, entries))


def _help(prog: str, description: str, table: Table) -> str:
    """The help text of the program, or of a group of commands."""
    commands = {name: entry.description for name, entry in table.items()}
    return "\n\n".join(
        [
            f"usage: {prog} COMMAND [options]",
            description,
            "commands:\n" + _columns(commands),
            "global options:\n" + _columns(GLOBAL_OPTIONS),
            f"`{prog} COMMAND --help` shows the options of a command and their defaults.",
        ]
    )


def _columns(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows)) + 2
    return "\n".join(f"  {name:<{width}}{description}" for name, description in rows.items())


def _answer_without_command(switches: list[str], help_text: str) -> int:
    switch = switches[0] if switches else "--help"
    if switch in ("-h", "--help"):
        sys.stdout.write(help_text + "\n")
    elif switch in ("-V", "--version"):
        sys.stdout.write(f"trafo {trafo.__version__}\n")
    else:
        raise ConfigError(f"unknown flag {switch}", hint="flags of a command come after it")
    return DONE


def _run(verb: Verb, arguments: list[str], prog: str) -> int:
    module = import_module(verb.module)
    try:
        options = _options(module, arguments, prog)
    except SystemExit as stop:  # --help has been printed
        return REFUSED if stop.code else DONE
    return module.run(options) or DONE


def _options(module: ModuleType, arguments: list[str], prog: str) -> object:
    """By the module's own `parse`, if it has one."""
    if hasattr(module, "parse"):
        return module.parse(arguments, prog)
    from trafo.config import parse_flags

    return parse_flags(module.Options, arguments, prog=prog)


def _take(arguments: list[str], switch: str) -> bool:
    """Remove a switch from anywhere in the arguments; returns whether it was given."""
    found = switch in arguments
    arguments[:] = [argument for argument in arguments if argument != switch]
    return found


def _answer(error: Exception) -> tuple[str, int]:
    """The error message and the exit code."""
    if isinstance(error, TrafoError):
        return f"error: {error}", REFUSED
    if isinstance(error, OSError) and error.filename is not None:
        return f"error: {error.filename}: {str(error.strerror).lower()}", REFUSED
    if isinstance(error, MemoryError):
        return "error: out of memory", REFUSED
    if isinstance(error, RecursionError):
        return "error: a file is nested too deeply", REFUSED
    if isinstance(error, ModuleNotFoundError) and not (error.name or "trafo").startswith("trafo"):
        return f"error: {missing_package(error.name or '', 'this command needs')}", REFUSED
    what = f"{type(error).__name__}: {error}"
    return f"error: this is a bug in trafo, --debug shows where: {what}", BUG


def _complain(line: str, code: int) -> int:
    # Not through the console: rich takes longer to import than a refusal should.
    sys.stderr.write(line + "\n")
    return code


def _reader_gone() -> int:
    # Python flushes stdout once more at exit; that must not print a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE
