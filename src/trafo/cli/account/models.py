"""A preset's name, a model's name or a YAML file, and switches -> the config of a model.

A YAML file holds the model's fields, and under `name` which model it is (transformer-lm if it does
not say); or such a mapping under `model`, as the config of a run has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trafo.config import parse_flags
from trafo.errors import ConfigError, did_you_mean
from trafo.models import CONFIGS, PRESETS, ModelConfig, config_from, model_name

_FILE_ENDINGS = (".yaml", ".yml")


def find_config(model: str, switches: dict[str, Any]) -> ModelConfig:
    """The config with the switches over it, checked."""
    base = _from_file(Path(model)) if model.endswith(_FILE_ENDINGS) else _by_name(model)
    has_context = "context_length" in type(base).__dataclass_fields__
    over = {k: v for k, v in switches.items() if has_context or k != "context_length"}
    return config_from(model_name(base), dataclasses.asdict(base) | over)


def _by_name(name: str) -> ModelConfig:
    if name in PRESETS:
        return PRESETS[name]
    if name in CONFIGS:
        return CONFIGS[name]()
    known = dict.fromkeys([*PRESETS, *CONFIGS])
    hint = did_you_mean(name, known, f"choose one of {', '.join(known)}, or a YAML file")
    raise ConfigError(f"unknown model {name!r}", hint=hint)


def _from_file(path: Path) -> ModelConfig:
    content = _read(path)
    fields = content["model"] if isinstance(content.get("model"), dict) else content
    base = _by_name(str(fields.pop("name", "transformer-lm")))
    try:  # the way of the flags checks names and types
        return parse_flags(type(base), list(_flags(fields)), default=base)
    except ConfigError as error:
        raise ConfigError(error.what, where=str(path), hint=error.hint) from None


def _read(path: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise ConfigError(what, where=str(path)) from None
    except (YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        what = f"is not YAML: {' '.join(str(error).split())}"
        raise ConfigError(what, where=str(path)) from None
    if not isinstance(content, dict):
        raise ConfigError("is a list, expected `key: value` lines", where=str(path))
    return {str(key): value for key, value in content.items()}


def _flags(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}={value}"
