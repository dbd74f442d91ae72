"""State <-> files: what a run saves and what other programs read.

The public names, each imported on first use: importing torch is slow.
"""

from typing import TYPE_CHECKING

from trafo.lazy import on_first_use

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import Bundle, load, load_bundle, load_config
    from trafo.checkpoint.export import export_model
    from trafo.checkpoint.locate import load_tokenizer
    from trafo.checkpoint.snapshot import load_checkpoint, save_checkpoint

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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "bundle": ["Bundle", "load", "load_bundle", "load_config"],
        "export": ["export_model"],
        "locate": ["load_tokenizer"],
        "snapshot": ["load_checkpoint", "save_checkpoint"],
    },
)
