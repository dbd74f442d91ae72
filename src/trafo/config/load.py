"""Defaults < YAML file < flags -> one instance of a dataclass; and back to YAML."""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import yaml

from trafo.config.flags import read_flags, require_all
from trafo.config.help import format_help
from trafo.config.structure import Tree, build, convert
from trafo.errors import ConfigError, InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

_OPEN_FILES = Path("/dev/fd")  # the pipes of `--config <(command)`, which a command writes to


def parse_flags(
    cls: type[D], flags: Sequence[str], *, default: D | None = None, prog: str | None = None
) -> D:
    """Build `cls` from flags over `default`, or over the class's own defaults.

    `--help` prints every flag with its default and raises `SystemExit(0)`.
    """
    return load(cls, None, flags, default=default, prog=prog)


def load(
    cls: type[D],
    source: str | Path | Tree | None = None,
    flags: Sequence[str] = (),
    *,
    where: str = "config",
    default: D | None = None,
    prog: str | None = None,
) -> D:
    """Build `cls` from a YAML file, or its values, and flags over it.

    The dataclasses check themselves once, at the end: a file may be valid only together with the
    flags. `where` names the source of values in errors.
    """
    if isinstance(source, str | Path):
        source, where = read_yaml(Path(source)), str(source)
    typed = convert(cls, source or {}, where)
    if asks_for_help(flags):
        default = build(cls, typed, default) if typed else default
        sys.stdout.write(format_help(cls, prog or "trafo", default))
        raise SystemExit(0)
    typed = merge(typed, nest(read_flags(cls, flags)))
    if default is None:
        require_all(cls, flatten(typed), prog)
    return build(cls, typed, default)


def asks_for_help(flags: Sequence[str]) -> bool:
    """Whether `--help` is among the flags."""
    words = flags[: list(flags).index("--")] if "--" in flags else flags
    return "-h" in words or "--help" in words


def with_values(instance: D, values: Mapping[str, Any], where: str) -> D:
    """Change some values of a config; `where` names their source in errors."""
    return build(type(instance), convert(type(instance), to_tree(values), where), instance)


def merge(base: Tree, values: Tree) -> dict[str, Any]:
    """Merge two trees of dictionaries; where they meet, `values` wins."""
    below = {
        name: merge(base[name], values[name])
        for name in base.keys() & values.keys()
        if isinstance(base[name], Mapping) and isinstance(values[name], Mapping)
    }
    return {**base, **values, **below}


def nest(settings: Tree) -> dict[str, Any]:
    """Write `{"model.d_ff": 8}` as `{"model": {"d_ff": 8}}`."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        value = nest(value) if isinstance(value, Mapping) else value
        for name in reversed(str(key).split(".")):
            value = {name: value}
        tree = merge(tree, value)
    return tree


def flatten(tree: Tree, prefix: str = "") -> dict[str, Any]:
    """Write `{"model": {"d_ff": 8}}` as `{"model.d_ff": 8}`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        is_branch = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{name}.") if is_branch else {prefix + name: value}
    return flat


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which `1e-3` is a number, `None` is null, a date is text, and no key comes twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping", node.start_mark, f"found {name!r} twice"
                )
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes the strings that `_Loader` would take for something else."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        data.encode()  # raises what `to_yaml` expects
        # In plain and single quotes, PyYAML reads some line breaks as spaces.
        style = None if data.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _class.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("None$"), ["N"])
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the file as plain dicts and lists."""
    if path.is_fifo() and path.parent != _OPEN_FILES:
        raise ConfigError("is a pipe", where=str(path), hint="save the settings to a file first")
    try:
        tree = yaml.load(path.read_bytes(), _Loader)
    except RecursionError:
        raise ConfigError("is nested too deeply", where=str(path)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"is not YAML: {' '.join(str(error).split())}", where=str(path)) from None
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot be read: {what}", where=str(path)) from None
    if tree is not None and not isinstance(tree, dict):
        kind = "a list" if isinstance(tree, list) else f"{tree!r:.40}"
        raise ConfigError(f"is {kind}, expected `key: value` lines", where=str(path))
    return {str(key): value for key, value in (tree or {}).items()}


def to_yaml(instance: DataclassInstance) -> str:
    """Write every setting as YAML, defaults included: defaults may change, a run must not."""
    try:
        return str(
            yaml.dump(to_tree(instance), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        )
    except UnicodeEncodeError as error:
        what = f"the name {error.object!r} is not UTF-8, which a config must be"
        raise InputError(what, hint="rename the file or the folder") from None


def to_tree(value: object) -> Any:
    """Convert a config, or any value of one, to types that JSON and YAML have."""
    if _is_instance(value):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        value = {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        return {key: to_tree(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_tree(inner) for inner in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()  # a number of NumPy or PyTorch
    if isinstance(value, enum.Enum):
        return value.name
    return str(value) if isinstance(value, Path) else value


def _is_instance(value: object) -> TypeGuard[DataclassInstance]:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
