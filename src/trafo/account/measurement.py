"""Predicted and measured memory of a training step.

Measured is the peak physical memory above what the process held before it built the model, in a
process of its own (this file, run as a program), so that no memory freed earlier can be used again.
The C library keeps freed blocks of up to 32 MB for later use, which no formula can foresee: the
measurement is made with blocks returned to the system at once (mallopt(3)).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from trafo.account.account import account
from trafo.account.memory import predict_memory
from trafo.account.workload import Workload, train_step
from trafo.errors import TrafoError, require
from trafo.fast import accelerate
from trafo.models import (
    EncoderDecoderConfig,
    GPT2Config,
    ModelConfig,
    RecurrentConfig,
    TransformerLMConfig,
    build_model,
    config_from,
    model_name,
)
from trafo.optim.config import OptimizerConfig, OptimizerName, build_optimizers
from trafo.runtime.machine import peak_memory, reset_peak_memory

_RETURN_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}

_TINY: Any = {"vocab_size": 512, "d_model": 64, "num_layers": 1, "num_heads": 2}
_SMALL: Any = {"vocab_size": 2000, "d_model": 256, "num_layers": 3, "num_heads": 4}
_LAYERS: Any = {"num_encoder_layers": 3, "num_decoder_layers": 3}
_PAIRS: Any = {"source_vocab_size": 8000, "target_vocab_size": 8000}
EXAMPLES: dict[str, tuple[ModelConfig, Workload]] = {
    "language model, batch 8": (
        TransformerLMConfig(vocab_size=10_000, d_ff=1344),
        Workload(seq=256, batch_size=8),
    ),
    "long sequences": (
        TransformerLMConfig(context_length=1024, **_SMALL),
        Workload(seq=1024, batch_size=2),
    ),
    "GPT-2, large vocabulary": (
        GPT2Config(d_model=320, num_layers=4, num_heads=5),
        Workload(seq=256),
    ),
    "encoder-decoder, dropout": (
        EncoderDecoderConfig(**_PAIRS, **_LAYERS, d_model=256, d_ff=1024),
        Workload(seq=128, source_seq=96, batch_size=4),
    ),
    "recurrent, attention": (
        RecurrentConfig(**_PAIRS, d_hidden=256, dropout=0.0),
        Workload(seq=40, batch_size=64),
    ),
}


@dataclass(frozen=True)
class Measurement:
    """Peak memory of one training step, in bytes."""

    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """Relative error of the prediction, +0.1 if it is 10 % more than measured."""
        return self.predicted / self.measured - 1.0


def measure(config: ModelConfig, work: Workload, optimizer: OptimizerName = "adamw") -> Measurement:
    """Predict, then run a step in a new process."""
    require(work.is_training, f"cannot measure {work.phase}", "measure a training step")
    predicted = predict_memory(account(config, work), optimizer).peak
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps([model_name(config), asdict(config), asdict(work), optimizer]),
        capture_output=True,
        text=True,
        env=os.environ | _RETURN_AT_ONCE,
        check=False,
    )
    if done.returncode:
        *_, last_line = ["it was killed, perhaps out of memory", *done.stderr.strip().splitlines()]
        raise TrafoError(f"the training step failed: {last_line}")
    return Measurement(predicted, int(done.stdout))


def _measure_here() -> None:
    """Read the task of `measure` from stdin, and write the bytes to stdout."""
    torch.set_num_threads(1)  # memory does not depend on them, and waiting threads cost time
    name, fields, work, optimizer = json.load(sys.stdin)
    for kind in (TransformerLMConfig, GPT2Config):  # load code and libraries, which do not count
        _train(kind(**_TINY), Workload(seq=256, batch_size=2), "adamw")
    before = reset_peak_memory()
    _train(config_from(name, fields), Workload(**work), optimizer)
    sys.stdout.write(str(peak_memory() - before))


def _train(config: ModelConfig, work: Workload, optimizer: OptimizerName) -> None:
    """Train two steps: the first one makes the optimizer's state, the second runs beside it."""
    model: Any = accelerate(build_model(config, dtype=getattr(torch, work.dtype))).train()
    optimizers = build_optimizers(model, OptimizerConfig(name=optimizer))
    for _ in range(2):
        train_step(model, optimizers, work)


if __name__ == "__main__":
    _measure_here()
