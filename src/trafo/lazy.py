"""Public names of a package that are imported on first use: importing torch is slow."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    package: str, homes: Mapping[str, Iterable[str]], parts: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`: the names of each of its modules, and subpackages.

    `homes` maps a module inside the package to the names that it gives to the package.
    """
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}
    parts = list(parts)

    def get(name: str) -> Any:
        if name in parts:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return get, lambda: [*home_of, *parts]
