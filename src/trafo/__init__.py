"""trafo: from raw text to a trained, measured and served Transformer on your own machine.

import trafo

run = trafo.train("stories.txt", budget="5m")  # sizes are chosen as on the command line
run.generate("Once upon a time", temperature=0.7)
model, tokenizer = trafo.load("runs/latest")  # or a Hugging Face folder, a .gguf, a llama2.c .bin
logits = model(tokenizer.encode_tensor("Hello"))
trafo.attention(model, tokenizer, "Hello")  # weights per layer and head
trafo.export(run, "out.gguf")
trafo.experiment("experiments/swiglu.yaml", "stories.txt").records  # arms, sweeps, seeds

Everything is imported when it is first used, the parts (`trafo.nn`, `trafo.models`, ...) too.
"""

from typing import TYPE_CHECKING

from trafo.lazy import on_first_use

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import load
    from trafo.checkpoint.export import export
    from trafo.experiments import experiment
    from trafo.generate.attention_weights import attention
    from trafo.tokenizer import Tokenizer
    from trafo.training import train
    from trafo.training.run import Run

__version__ = "0.1.0"

__all__ = ["Run", "Tokenizer", "attention", "experiment", "export", "load", "train"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "checkpoint.bundle": ["load"],
        "checkpoint.export": ["export"],
        "experiments": ["experiment"],
        "generate.attention_weights": ["attention"],
        "tokenizer": ["Tokenizer"],
        "training": ["train"],
        "training.run": ["Run"],
    },
    parts=[
        *("account", "checkpoint", "config", "data", "errors", "evaluate", "experiments"),
        *("fast", "generate", "models", "nn", "optim", "runtime", "tokenizer", "training"),
    ],
)
