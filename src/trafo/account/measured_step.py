"""A program: run a training step in this process and print its peak memory.

    python -m trafo.account.measured_step < task.json

The task names a model, its fields and the workload; the answer is the number of bytes above what
the process held before it built the model. It runs in its own process, so that no memory freed
earlier can be used again.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from trafo.account.passes import loss
from trafo.account.workload import Workload
from trafo.fast import accelerate
from trafo.models import GPT2Config, ModelConfig, TransformerLMConfig, build_model, config_from
from trafo.optim.config import OptimizerConfig, OptimizerName, build_optimizers
from trafo.runtime.memory import peak_memory, reset_peak_memory


def main() -> None:
    """Task on stdin, answer on stdout."""
    torch.set_num_threads(1)  # memory does not depend on them, and waiting threads cost time
    task = json.load(sys.stdin)
    config = config_from(task["model"], task["fields"])
    work = Workload(**task["work"])
    _touch_the_libraries()
    before = reset_peak_memory()
    _train(config, work, task["optimizer"])
    json.dump({"bytes": peak_memory() - before}, sys.stdout)


def _train(config: ModelConfig, work: Workload, optimizer: OptimizerName) -> None:
    """Two steps: the first one makes the optimizer's state, the second runs beside it."""
    model: Any = accelerate(build_model(config, dtype=getattr(torch, work.dtype))).train()
    optimizers = build_optimizers(model, OptimizerConfig(name=optimizer))
    for _ in range(2):
        loss(model, work).backward()  # type: ignore[no-untyped-call]
        for each in optimizers:
            each.step()
            each.zero_grad()


def _touch_the_libraries() -> None:
    """Load code and start threads, so that they are not counted as the model's."""
    small: Any = {"vocab_size": 512, "d_model": 64, "num_layers": 1, "num_heads": 2}
    for config in (TransformerLMConfig(**small), GPT2Config(**small)):
        _train(config, Workload(seq=256, batch_size=2), "adamw")


if __name__ == "__main__":
    main()
