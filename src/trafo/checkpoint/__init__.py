"""State <-> files: what a run saves and what other programs read.

The public names, each imported on first use: importing torch is slow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import Bundle, load, load_bundle, load_config
    from trafo.checkpoint.export import export_model
    from trafo.checkpoint.locate import load_tokenizer
    from trafo.checkpoint.single_file import load_checkpoint, save_checkpoint

__all__ = [
    "Bundle",
    "export_model",
    "load",
    "load_bundle",
    "load_checkpoint",
    "load_config",
    "load_tokenizer",
    "save_checkpoint",
]

_HOMES = {
    "export_model": "export",
    "load_tokenizer": "locate",
    "load_checkpoint": "single_file",
    "save_checkpoint": "single_file",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'bundle')}"), name)
