"""Writes docs/config.md from the dataclasses: `python docs/make_config.py`.

A test checks that the page is what this would write.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from trafo.config import Setting, fields_table
from trafo.training.config import TrainConfig

PAGE = Path(__file__).parent / "config.md"

HEAD = """# Settings of `trafo train`

Every setting, with its default. A setting is a key in a YAML file given with
`--config`, and a flag: `model.d_model` is `--model.d-model`. Flags override the file, which
overrides the defaults. Without a file, `trafo train TEXT` picks sizes for the text and the machine
and prints them. `--lr`, `--prompt`, `--threads`,
`--d-model`, `--layers`, `--heads` and `--vocab-size` are short flags, the last four for the model
that is trained. A switch that is on is turned off with `no-`:
`--watch.no-tensorboard`.

This page is generated from the dataclasses by `python docs/make_config.py`.
"""


def page() -> str:
    parts = [HEAD]
    for branch, settings in groupby(fields_table(TrainConfig), key=_branch):
        parts.append(f"## {f'`{branch}`' if branch else 'The run'}\n")
        parts.append("| key | takes | default | what it does |\n|---|---|---|---|")
        parts[-1] += "".join(f"\n{_row(setting)}" for setting in settings) + "\n"
    return "\n".join(parts)


def _branch(setting: Setting) -> str:
    return setting.key.rpartition(".")[0]


def _row(setting: Setting) -> str:
    takes = setting.type.replace("|", "\\|")
    what = " ".join(setting.help.split()).replace("|", "\\|")
    return f"| `{setting.key}` | {takes} | {_default(setting.default)} | {what} |"


def _default(value: object) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return " ".join(f"`{part}`" for part in value)
    return "`''`" if value == "" else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
