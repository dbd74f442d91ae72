"""`trafo completion`: a script by which bash completes commands, flags, their choices and files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from trafo.cli.verbs import VERBS, Group, Table
from trafo.config import Positional

# Words that are not flags and name a command are the path to it; other words do not change it.
_SCRIPT = """\
# bash completion of trafo, written by `trafo completion bash`
_trafo() {{
  local word current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=trafo words=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {commands} " in *" $command-$word "*) command=$command-$word ;; esac
  done
  case "$command $previous" in
{choices}
  *) case "$command" in
{flags}
    esac
    [[ $words == --* && $current != -* ]] && words= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _trafo trafo
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print a script for the shell, which then completes commands, flags and their choices.

    Install it for good with
    trafo completion bash > ~/.trafo-completion && echo . ~/.trafo-completion >> ~/.bashrc
    or for this shell with
    source <(trafo completion bash)
    """

    shell: Positional[Literal["bash"]] = "bash"
    """the shell"""


def run(options: Options) -> None:
    """Print the script."""
    import sys

    sys.stdout.write(script())


def script() -> str:
    """The script for bash."""
    paths = dict(_commands("trafo", VERBS))
    flags = [
        f"    {path}) words={shlex.quote(' '.join(words))} ;;" for path, words in paths.items()
    ]
    choices = [
        f"  {shlex.quote(f'{path} {flag}')}) words={shlex.quote(' '.join(values))} ;;"
        for path, words in paths.items()
        for flag, values in words.items()
        if values
    ]
    return _SCRIPT.format(
        commands=" ".join(paths), choices="\n".join(choices), flags="\n".join(flags)
    )


def _commands(path: str, table: Table) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Every path of commands, with what can follow it and the choices after that."""
    yield path, {name: [] for name in table}
    for name, entry in table.items():
        if isinstance(entry, Group):
            yield from _commands(f"{path}-{name}", entry.verbs)
        else:
            yield f"{path}-{name}", _flags(entry.module)


def _flags(module: str) -> dict[str, list[str]]:
    """The flags of a command, each with its choices."""
    from trafo.config.fields import fields_table

    settings = [s for s in fields_table(import_module(module).Options) if not s.is_positional]
    flags = {
        flag: re.findall(r"'([^']*)'", s.type) for s in settings for flag in (s.flag, *s.aliases)
    }
    return flags | {"--help": [], "--debug": [], "--quiet": []}
