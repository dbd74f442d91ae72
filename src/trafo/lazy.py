"""Public names of a package that are imported on first use: importing torch is slow."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from trafo.errors import missing_package


def on_first_use(
    package: str, homes: Mapping[str, Iterable[str]], parts: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`: the names of each of its modules, and subpackages.

    `homes` maps a module inside the package to the names that it gives to the package.
    """
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}
    parts = list(parts)

    def get(name: str) -> Any:
        if name not in home_of and name not in parts:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(home_of.get(name, f"{package}.{name}"))
        except ModuleNotFoundError as error:
            raise missing_package(error.name or name, f"{package}.{name} needs") from error
        return module if name in parts else getattr(module, name)

    return get, lambda: [*home_of, *parts]
