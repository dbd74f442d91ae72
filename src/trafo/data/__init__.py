"""Texts -> ids -> batches, and a corpus from Python's own standard library."""

from typing import TYPE_CHECKING

from trafo.lazy import on_first_use

if TYPE_CHECKING:
    from trafo.data.corpora import build_corpus
    from trafo.data.prepare import DataConfig, Dataset
    from trafo.data.windows import WindowSampler, get_batch

__all__ = ["DataConfig", "Dataset", "WindowSampler", "build_corpus", "get_batch"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "corpora": ["build_corpus"],
        "prepare": ["DataConfig", "Dataset"],
        "windows": ["WindowSampler", "get_batch"],
    },
)
