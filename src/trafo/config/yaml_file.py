"""YAML file -> a dataclass with the file's values over its defaults, by OmegaConf.

Keys are checked here, so that the error can name the nearest known one; types are checked by
OmegaConf, which also fills in interpolations such as `${model.d_model}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import tyro
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from trafo.config.fields import fields_table, is_dataclass_type, type_name, typed_fields
from trafo.errors import ConfigError, did_you_mean

T = TypeVar("T")
Tree = Mapping[str, Any]

# 9 repeated 400 times is not a float (OverflowError); keys are not a list (TypeError).
_REFUSALS = (OmegaConfBaseException, OverflowError, TypeError)
_OPEN_FILES = Path("/dev/fd")  # the pipes of `--config <(command)`, which a command writes to


def read_yaml(path: Path) -> Tree:
    """The file as plain dicts and lists."""
    if path.is_fifo() and path.parent != _OPEN_FILES:
        raise ConfigError("is a pipe", where=str(path), hint="save the settings to a file first")
    try:
        plain = OmegaConf.to_container(OmegaConf.load(path))
    except RecursionError:
        raise ConfigError("is nested too deeply", where=str(path)) from None
    except (YAMLError, ValueError, OmegaConfBaseException) as error:
        raise ConfigError(f"is not YAML: {' '.join(str(error).split())}", where=str(path)) from None
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot be read: {what}", where=str(path)) from None
    if not isinstance(plain, dict):
        raise ConfigError("is a list, expected `key: value` lines", where=str(path))
    return {str(key): value for key, value in plain.items()}


def draft(cls: type[T], values: Tree, where: str) -> T:
    """An instance with `values` over its defaults, as the defaults of `parse_flags`.

    It has not checked itself yet, see `_draft`. `where` names the file in errors.
    """
    _check_keys(cls, values, where)
    return _draft(cls, _merge(cls, values, where), where)


def _check_keys(cls: type, values: Tree, where: str, prefix: str = "") -> None:
    """Refuse keys that the dataclasses do not have, and values where there should be keys."""
    hints = {field.name: hint for field, hint in typed_fields(cls)}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if name not in hints:
            raise ConfigError(
                f"unknown key {key}", where=where, hint=_advice(cls, str(name), prefix)
            )
        if not is_dataclass_type(hints[name]):
            continue
        if not isinstance(value, Mapping):
            known = ", ".join(field.name for field, _ in typed_fields(hints[name]))
            what = f"{key}: expected keys below it, got {value!r}"
            raise ConfigError(what, where=where, hint=f"it has {known}")
        _check_keys(hints[name], value, where, prefix=f"{key}.")


def _advice(cls: type, name: str, prefix: str) -> str:
    """The same name further down, else the nearest one beside the wrong one, else all names."""
    siblings = [field.name for field, _ in typed_fields(cls)]
    known = [*siblings, *(setting.key for setting in fields_table(cls))]
    hint = did_you_mean(name, known, f"known here: {', '.join(siblings)}")
    return hint.replace("did you mean ", f"did you mean {prefix}")


def _merge(cls: type, values: Tree, where: str) -> DictConfig:
    """The defaults with `values` over them, types checked."""
    defaults = _defaults(cls)
    try:
        merged = OmegaConf.merge(defaults, values)
    except _REFUSALS:
        # Not all of OmegaConf's errors say where they are; one leaf at a time, we know.
        for key, value, hint in _leaves(cls, values):
            _check_leaf(defaults, key, value, hint, where)
        raise
    assert isinstance(merged, DictConfig)
    return merged


@cache
def _defaults(cls: type) -> DictConfig:
    """Made once: merging copies them, and making them takes longer than everything else."""
    defaults: DictConfig = OmegaConf.structured(cls)
    return defaults


def _leaves(cls: type, values: Tree, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each value of the file with its full key and the type it should have."""
    for field, hint in typed_fields(cls):
        if field.name not in values:
            continue
        key, value = f"{prefix}{field.name}", values[field.name]
        if is_dataclass_type(hint):
            yield from _leaves(hint, value, prefix=f"{key}.")
        else:
            yield key, value, hint


def _check_leaf(defaults: DictConfig, key: str, value: object, hint: object, where: str) -> None:
    branch = value
    for name in reversed(key.split(".")):
        branch = {name: branch}
    assert isinstance(branch, dict)
    try:
        OmegaConf.merge(defaults, branch)
    except _REFUSALS:
        what = f"{key}: expected {type_name(hint)}, got {value!r:.100}"
        raise ConfigError(what, where=where) from None


def _draft(cls: type[T], tree: DictConfig, where: str, prefix: str = "") -> T:
    """An instance with the values of `tree` that has not checked itself yet.

    tyro takes its defaults from an instance, and a real one might refuse what the flags are about
    to correct, or lack what they are about to give.
    """
    draft = object.__new__(cls)
    for field, hint in typed_fields(cls):
        key = f"{prefix}{field.name}"
        value: object
        if OmegaConf.is_missing(tree, field.name):
            value = tyro.MISSING
        elif is_dataclass_type(hint):
            value = _draft(hint, tree[field.name], where, prefix=f"{key}.")
        else:
            value = _resolve(tree, field.name, f"{key}: expected {type_name(hint)}", where)
            if "dict" not in type_name(hint):
                _refuse_keys_in_list(value, f"{key}: expected {type_name(hint)}", where)
        object.__setattr__(draft, field.name, value)
    return draft


def _resolve(tree: DictConfig, name: str, expected: str, where: str) -> object:
    """The value as plain Python, with interpolations filled in."""
    try:
        value = tree[name]
        return OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{expected}, but {reason}", where=where) from None


def _refuse_keys_in_list(value: object, expected: str, where: str) -> None:
    """OmegaConf takes a mapping as an entry of a list, whatever the type of its entries."""
    for entry in value if isinstance(value, list | tuple) else ():
        if isinstance(entry, dict):
            raise ConfigError(f"{expected}, got {entry!r:.100} in it", where=where)
