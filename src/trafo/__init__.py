"""trafo: from raw text to a trained, measured and served Transformer on your own machine.

import trafo

run = trafo.train("stories.txt", budget="5m")  # sizes are chosen as on the command line
run.generate("Once upon a time", temperature=0.7)
model, tokenizer = trafo.load("runs/latest")  # or a Hugging Face folder, a .gguf, a llama2.c .bin
logits = model(tokenizer.encode_tensor("Hello"))
trafo.attention(model, tokenizer, "Hello")  # weights per layer and head
trafo.export(run, "out.gguf")

Everything is imported when it is first used, the parts (`trafo.nn`, `trafo.models`, ...) too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import load
    from trafo.checkpoint.export import export
    from trafo.generate.attention_weights import attention
    from trafo.tokenizer import Tokenizer
    from trafo.train.run import Run

__version__ = "0.1.0"

__all__ = ["Run", "Tokenizer", "attention", "export", "load", "train"]

_HOMES = {
    "Run": "train.run",
    "Tokenizer": "tokenizer",
    "attention": "generate.attention_weights",
    "export": "checkpoint.export",
    "load": "checkpoint.bundle",
}
_PARTS = [
    *("account", "checkpoint", "config", "data", "errors", "evaluate", "generate", "models"),
    *("nn", "optim", "runtime", "tokenizer", "train"),
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_PARTS]
