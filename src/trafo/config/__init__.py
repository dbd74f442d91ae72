"""A tree of dataclasses from three sources: defaults, then a YAML file, then command-line flags.

    config = load(TrainConfig, "recipe.yaml", ["--model.d-model", "512"])

Later sources win. A key or flag that does not exist, or a value of the wrong type, is a
`ConfigError` that names the place and what would be right. `to_yaml` writes the resolved tree so
that loading it gives the same tree again. Any dataclass works.
"""

from trafo.config.fields import Argument, Positional, Setting, fields_table
from trafo.config.flags import read_flags
from trafo.config.load import (
    asks_for_help,
    flatten,
    load,
    merge,
    nest,
    parse_flags,
    read_yaml,
    to_tree,
    to_yaml,
    with_values,
)
from trafo.config.structure import build, convert

__all__ = [
    "Argument",
    "Positional",
    "Setting",
    "asks_for_help",
    "build",
    "convert",
    "fields_table",
    "flatten",
    "load",
    "merge",
    "nest",
    "parse_flags",
    "read_flags",
    "read_yaml",
    "to_tree",
    "to_yaml",
    "with_values",
]
