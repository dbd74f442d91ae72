"""MODEL and its flags -> the model's config, by the same machinery as `trafo train`.

MODEL is a name; a YAML file: the model's fields with its `name` (transformer-lm unless it says
otherwise), or the config of a training run; or what holds a model, such as a run or a GGUF file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, make_dataclass
from pathlib import Path
from typing import Any

from trafo.cli.arguments import only
from trafo.config import parse_flags
from trafo.errors import ConfigError, did_you_mean
from trafo.models import CONFIGS, PRESETS, ModelConfig

DEFAULT = "transformer-lm"


def parse_with_model(
    questions: type, name: str, flags: list[str], prog: str
) -> tuple[ModelConfig, Any]:
    """The model's config, and an instance of `questions`; the flags of both are accepted."""
    from trafo.config.yaml_file import draft

    values = _read(Path(name)) if name.endswith((".yaml", ".yml")) else {"name": name}
    base = _by_name(str(values.pop("name", DEFAULT)))
    kind = type(base)
    both: type = make_dataclass(
        "Options",
        (),
        bases=(questions, kind),
        namespace={"__doc__": questions.__doc__},
        frozen=True,
        kw_only=True,
    )
    default: Any = draft(both, asdict(base) | values, name)
    options: Any = parse_flags(both, flags, default=default, prog=f"{prog} {name}")
    return only(kind, options), options


def _by_name(name: str) -> ModelConfig:
    if name in PRESETS:
        return PRESETS[name]
    if name in CONFIGS:
        return CONFIGS[name]()
    if Path(name).exists():
        from trafo.checkpoint.bundle import load_config

        return load_config(name)
    known = dict.fromkeys([*PRESETS, *CONFIGS])
    hint = did_you_mean(name, known, f"choose one of {', '.join(known)}, a YAML file or a run")
    raise ConfigError(f"unknown model {name!r}", hint=hint)


def _read(path: Path) -> dict[str, Any]:
    """The fields in the file; of a run's config, those of its model."""
    from trafo.config.yaml_file import read_yaml

    values = read_yaml(path)
    name = str(values.get("architecture", DEFAULT))
    branch = "model" if name == DEFAULT else name.replace("-", "_")
    inner = values.get(branch, {})
    is_run = "architecture" in values or branch in values
    return {"name": name, **inner} if is_run and isinstance(inner, Mapping) else dict(values)
