"""Checks that every model config makes: one clear line for each thing that cannot work."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from trafo.errors import ConfigError, InputError


def require(fits: bool, what: str, hint: str | None = None) -> None:
    if not fits:
        raise ConfigError(what, hint=hint)


def require_positive(config: Any, names: Iterable[str]) -> None:
    """Each named field is a whole number of at least 1 (or None, where the field allows it)."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= 1, f"{name} is {value}", "it must be at least 1")


def require_choice(config: Any, name: str, choices: Iterable[str]) -> None:
    value = getattr(config, name)
    known = tuple(choices)
    require(value in known, f"{name} is {value!r}", f"choose one of {', '.join(known)}")


def require_dropout(dropout: float) -> None:
    require(
        0.0 <= dropout < 1.0, f"dropout is {dropout}", "choose a number from 0 up to, not with, 1"
    )


def require_fits_context(ids: Tensor, context_length: int) -> None:
    if ids.ndim != 2 or not ids.numel():
        raise InputError(
            f"ids have the shape {tuple(ids.shape)}, expected (batch, seq), both at least 1",
            hint="ids[None] makes a batch of one sequence",
        )
    if ids.shape[-1] > context_length:
        raise InputError(
            f"the input has {ids.shape[-1]} tokens, more than the context of {context_length}",
            hint="shorten the input or choose a larger context_length",
        )
