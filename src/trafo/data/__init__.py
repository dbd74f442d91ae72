"""Ids -> batches; and a corpus from Python's own standard library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.data.corpora import build_corpus
    from trafo.data.prepare import DataConfig, Dataset
    from trafo.data.windows import WindowSampler, get_batch

__all__ = ["DataConfig", "Dataset", "WindowSampler", "build_corpus", "get_batch"]

_HOMES = {"build_corpus": "corpora", "WindowSampler": "windows", "get_batch": "windows"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'prepare')}"), name)
