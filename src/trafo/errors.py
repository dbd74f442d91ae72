"""The errors that trafo raises on purpose, and the checks that raise them. Imports nothing.

One style for all: what is wrong, where, and what would be right. The command line prints the
message alone and exits with code 2; `--debug` adds the traceback.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class TrafoError(Exception):
    """Something that the user can fix."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {hint}" if hint else text)


class ConfigError(TrafoError, ValueError):
    """A setting is unknown, of the wrong type, or does not fit the others."""


class InputError(TrafoError, ValueError):
    """Text or data given to us cannot be used as it is."""


class FormatError(TrafoError, ValueError):
    """A file is not in the format it should be in, or is damaged."""


class MissingPackageError(TrafoError, ImportError):
    """An optional package is needed for what was asked."""


class StorageError(TrafoError, OSError):
    """The disk or folder refused: full, unwritable, missing."""


def missing_package(module: str, what: str, where: str | None = None) -> MissingPackageError:
    """The error for a module that is not installed; `what` says who needs it."""
    package = module.partition(".")[0]
    what = f"{what} the package {package}"
    return MissingPackageError(what, where=where, hint=install_command(package))


def install_command(package: str) -> str:
    """Installs trafo, from where it came, with the extra that lists the package."""
    import json
    import re
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        trafo = metadata.distribution("trafo")
    except metadata.PackageNotFoundError:
        return f"pip install {package}"
    entry = re.compile(package.replace("_", "[_-]") + r"[^\w-].*extra == .(\w+)", re.IGNORECASE)
    extras = [found[1] for line in trafo.requires or () if (found := entry.match(line))]
    if not extras:
        return f"pip install {package}"
    origin = json.loads(trafo.read_text("direct_url.json") or "{}")  # absent: from an index
    source = url2pathname(urlsplit(origin["url"]).path) if origin else "trafo"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{source}[{extras[0]}]'"


def require(fits: bool, what: str, hint: str | None = None) -> None:
    """Refuse a wrong setting: `require(p < 1, f"p is {p}", "it must be below 1")`."""
    if not fits:
        raise ConfigError(what, hint=hint)


def require_at_least(least: float, **settings: float | None) -> None:
    """Each setting, given by its name, is `least` or more; None: not set."""
    for name, value in settings.items():
        fits = value is None or least <= value < float("inf")
        require(fits, f"{name} is {value}", f"it must be at least {least}")


def require_choice(choices: Collection[str], **settings: str) -> None:
    """Each setting, given by its name, is one of `choices`."""
    for name, value in settings.items():
        require(value in choices, f"{name} is {value!r}", f"choose one of {', '.join(choices)}")


def check_types(function: Function) -> Function:
    """Refuse numbers, strings and choices of another type than annotated, as swapped ones are.

    `default_d_ff(96, "swiglu")` would multiply a string. Other annotations are left alone.
    """
    from functools import cache, wraps

    parameters = cache(lambda: _parameters(function))  # at the first call: nobody waits for it

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        names, plain = parameters()
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in plain:
                types, choices, hint = plain[name]
                fits = isinstance(value, types) or any(value == choice for choice in choices)
                require(fits, f"{name} is {value!r:.40}", hint)
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def check_public_types(names: dict[str, Any], public: Iterable[str]) -> None:
    """Check the arguments of a package's public functions and of its own classes' constructors."""
    for name in public:
        value = names[name]
        if isinstance(value, type):
            value.__init__ = check_types(value.__init__)  # type: ignore[misc]
        elif callable(value) and getattr(value, "__module__", "").startswith("trafo."):
            names[name] = check_types(value)


_Plain = dict[str, tuple[tuple[type, ...], tuple[object, ...], str]]


def _parameters(function: Callable[..., Any]) -> tuple[list[str], _Plain]:
    """The names of all, and of those that take plain values their types, choices and a hint."""
    from inspect import signature
    from numbers import Integral, Real
    from types import UnionType
    from typing import Literal, Union, get_args, get_origin, get_type_hints

    wider: dict[Any, tuple[type, str]] = {
        int: (Integral, "an integer"),
        float: (Real, "a number"),
        bool: (bool, "True or False"),
        str: (str, "a string"),
        type(None): (type(None), "None"),
    }
    found: _Plain = {}
    for name, annotation in get_type_hints(function).items():
        is_union = get_origin(annotation) in (Union, UnionType)
        parts = get_args(annotation) if is_union else (annotation,)
        choices = tuple(c for p in parts if get_origin(p) is Literal for c in get_args(p))
        plain = [p for p in parts if get_origin(p) is not Literal]
        if name != "return" and all(p in wider for p in plain):
            words = [wider[p][1] for p in plain]
            hint = f"it must be {' or '.join(words)}"
            if choices:
                hint = f"choose one of {', '.join(map(str, (*choices, *words)))}"
            found[name] = (tuple(wider[p][0] for p in plain), choices, hint)
    return list(signature(function).parameters), found


def require_path(path: object) -> None:
    """Refuse an empty path, which would be this folder."""
    if path == "":
        raise InputError("the path is empty", hint="give a file or a folder; '.' is this folder")


def require_lists(**given: object) -> None:
    """Refuse one string where several belong: it would be taken for a list of its letters."""
    for name, value in given.items():
        if isinstance(value, str | bytes):
            what = f"{name.replace('_', ' ')} must be a list"
            raise InputError(what, hint=f"write [{value[:40]!r}]")


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """A hint for an unknown name: the known one that it resembles, or `otherwise`, or all.

    Of a name with dots the last part will do, or its end: `--lr` resembles `--optimizer.lr`, and
    `--heads` `--model.num-heads`.
    """
    from difflib import get_close_matches

    known = list(known)
    word = name.lstrip("-")
    namesakes = [other for other in known if other.endswith(f".{word}")]
    if len(namesakes) > 1:  # each model has its own; the user knows which one is meant
        owners = [other.lstrip("-").removesuffix(f".{word}") for other in namesakes[1:]]
        return f"did you mean {namesakes[0]}, or that of {', '.join(owners)}?"
    alike = [other for other in known if other.endswith((f"-{word}", f"_{word}"))]
    matches = namesakes or alike
    if not matches and "." not in word:  # the end of a name may be misspelt, too
        ends = {other.rpartition(".")[2].lstrip("-"): other for other in reversed(known)}
        matches = [ends[end] for end in get_close_matches(word, ends, n=1)]
    matches = matches or get_close_matches(name, known, n=1)
    if matches:
        return f"did you mean {matches[0]}?"
    return otherwise or f"choose one of {', '.join(known)}"
