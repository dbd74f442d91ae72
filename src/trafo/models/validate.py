"""Checks that all model configs and models share."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from trafo.errors import InputError, require_at_least


def require_positive(config: Any, names: Iterable[str]) -> None:
    """Each named field is a whole number of at least 1 (or None, where the field allows it)."""
    require_at_least(1, **{name: getattr(config, name) for name in names})


def require_fits_context(ids: Tensor, context_length: int) -> None:
    """`ids` are a batch of sequences that are not longer than the context."""
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
