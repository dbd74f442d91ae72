"""Predicted and measured memory of a training step.

Measured is the peak physical memory of a separate process, see `measured_step.py`. The C
library keeps freed blocks of up to 32 MB for later use, which no formula can foresee: the
measurement is made with blocks returned to the system at once (`MALLOC_MMAP_THRESHOLD_`, see
mallopt(3)), and `measure(..., returning=False)` measures with the default.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from trafo.account.account import account
from trafo.account.memory import memory
from trafo.account.workload import Workload
from trafo.errors import ConfigError, TrafoError
from trafo.models import (
    EncoderDecoderConfig,
    GPT2Config,
    ModelConfig,
    RecurrentConfig,
    TransformerLMConfig,
    model_name,
)
from trafo.optim.config import OptimizerName

_RETURN_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


@dataclass(frozen=True)
class Measurement:
    """Peak memory of one training step, in bytes."""

    name: str
    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """Relative error of the prediction; +0.1: predicted 10 % more than measured."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Shape:
    """A model and a workload to measure."""

    name: str
    config: ModelConfig
    work: Workload


_PAIRS: Any = {"source_vocab_size": 8000, "target_vocab_size": 8000}
_SMALL_LM: Any = {"vocab_size": 2000, "d_model": 256, "num_layers": 3, "num_heads": 4}
_SMALL_PAIRS: Any = {"num_encoder_layers": 3, "num_decoder_layers": 3, "d_model": 256, "d_ff": 1024}
SHAPES = (
    Shape(
        "language model, batch 8",
        TransformerLMConfig(vocab_size=10_000, d_ff=1344),
        Workload(seq=256, batch_size=8),
    ),
    Shape(
        "long sequences",
        TransformerLMConfig(context_length=1024, **_SMALL_LM),
        Workload(seq=1024, batch_size=2),
    ),
    Shape(
        "GPT-2, large vocabulary",
        GPT2Config(d_model=320, num_layers=4, num_heads=5),
        Workload(seq=256),
    ),
    Shape(
        "encoder-decoder, dropout",
        EncoderDecoderConfig(**_PAIRS, **_SMALL_PAIRS),
        Workload(seq=128, source_seq=96, batch_size=4),
    ),
    Shape(
        "recurrent, attention",
        RecurrentConfig(**_PAIRS, d_hidden=256, dropout=0.0),
        Workload(seq=40, batch_size=64),
    ),
)


def measure(
    shape: Shape, optimizer: OptimizerName = "adamw", *, returning: bool = True
) -> Measurement:
    """Predict, then run a step in a new process."""
    if not shape.work.is_training:
        raise ConfigError(f"cannot measure {shape.work.phase}", hint="measure a training step")
    predicted = memory(account(shape.config, shape.work), optimizer).peak
    task = {
        "model": model_name(shape.config),
        "fields": dataclasses.asdict(shape.config),
        "work": dataclasses.asdict(shape.work),
        "optimizer": optimizer,
    }
    done = subprocess.run(
        [sys.executable, "-m", "trafo.account.measured_step"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env=os.environ | (_RETURN_AT_ONCE if returning else {}),
        check=False,
    )
    if done.returncode:
        *_, last_line = ["it was killed, perhaps out of memory", *done.stderr.strip().splitlines()]
        raise TrafoError(f"the step of {shape.name} failed: {last_line}")
    return Measurement(shape.name, predicted, json.loads(done.stdout)["bytes"])
