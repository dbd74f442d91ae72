"""What the training loop costs beside the bare step.

Vocabulary 10,000, context 256, d_model 512, 4 layers, 16 heads, d_ff 1,344, batch 8, AdamW. The
bare step is forward, loss, backward and update on a batch that is there already. The loop does the
same and draws batches from a token file, clips, checks for NaN, logs each step to metrics.jsonl and
TensorBoard, and validates at the share of time it takes by default. The two take turns on the same
model, ten steps each. A checkpoint, which comes ten times in a run, is measured apart.
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import torch

from model_peers import CONFIG
from timing import compare
from trafo.data.prepare import DataConfig
from trafo.runtime.progress import set_quiet
from trafo.training.build import build
from trafo.training.config import TrainConfig, WatchConfig
from trafo.training.distributed import Ranks
from trafo.training.loop import Trainer
from trafo.training.plan import Clock, Plan
from trafo.training.run import Run
from trafo.training.step import Training

STEPS = 10
MANY = 1_000_000
TEXT = "It is a truth universally acknowledged that numbers need words {}.\n"


def _training(folder: Path) -> Training:
    text = folder / "text.txt"
    text.write_text("".join(TEXT.format(number) for number in range(100_000)))
    config = TrainConfig(
        text=(str(text),),
        out=folder / "run",
        steps=MANY,
        batch_size=8,
        model=CONFIG,
        data=DataConfig(cache=folder / "cache"),
        watch=WatchConfig(log_every=1, evaluate_every=STEPS, sample_every=0),
    )
    return build(config, Ranks())


def _bare(training: Training):  # type: ignore[no-untyped-def]
    batch = training.task.batch(0, 0, 0, 1, training.device)

    def run() -> None:
        for _ in range(STEPS):
            (training.objective(*batch.inputs) / batch.num_targets).backward()
            for optimizer in training.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return run


def measure(rounds: int) -> None:
    set_quiet(True)
    with tempfile.TemporaryDirectory() as name:
        training = _training(Path(name))
        plan = Plan.of(training.config, MANY, training.task)
        plan = dataclasses.replace(plan, checkpoint_every=MANY)
        trainer = Trainer(training, Run.new(training.config), Clock(), plan)
        with trainer.listener.listening(trainer.state):

            def loop() -> None:
                for _ in range(STEPS):
                    trainer.advance()

            compare(
                "training: the loop with all it does, against the bare step",
                {"trafo train": loop, "the bare step": _bare(training)},
                amount=STEPS * training.task.tokens_per_step,
                unit="tokens",
                rounds=rounds,
            )
            start = time.perf_counter()
            trainer.save()
            print(f"  a checkpoint takes {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="default: one for each core")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    measure(options.rounds)
