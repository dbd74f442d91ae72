"""Threads beside another busy process: training steps per second with a fixed number and chosen.

    python benchmarks/threads.py [--seconds 20]

In turn: 1 thread, all threads, and the number that trafo chooses, in one process, while none, one
or two other processes compute. The claim: at least 80 % of the best fixed number.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

from trafo.fast import accelerate, head_loss
from trafo.fast.threads import torch_threads
from trafo.models import TransformerLM
from trafo.optim import AdamW
from trafo.runtime.threads import ThreadChooser

VOCAB, CONTEXT, D_MODEL, LAYERS, HEADS, BATCH = 2048, 96, 96, 3, 3, 32
MOST = torch.get_num_threads()
BUSY = "import torch\ntorch.set_num_threads(1)\na = torch.rand(512, 512)\nwhile True: a @ a"


class Work:
    """Steps of a small model, as `trafo train` takes them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = accelerate(TransformerLM(VOCAB, CONTEXT, D_MODEL, LAYERS, HEADS))
        self.optimizer = AdamW(self.model.parameters())
        self.ids = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1))

    def step(self) -> None:
        ids, targets = self.ids[:, :-1], self.ids[:, 1:]
        head_loss(self.model, self.model.hidden_states(ids), targets).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def steps_in(seconds: float, work: Work, threads: ThreadChooser) -> int:
    """Steps that fit into the time."""
    steps, end = 0, perf_counter() + seconds
    while perf_counter() < end:
        with threads.timed():
            work.step()
        steps += 1
    return steps


def measure(seconds: float, busy: int, rounds: int) -> None:
    work = Work()
    torch.set_num_threads(MOST)
    work.step()
    chosen = torch_threads()
    found: dict[str, int] = {"1 thread": 0, f"{MOST} threads": 0, "chosen": 0}
    share = seconds / rounds
    with busy_processes(busy):
        for _ in range(rounds):
            for name, number in (("1 thread", 1), (f"{MOST} threads", MOST)):
                found[name] += steps_in(share, work, torch_threads(number))
            torch.set_num_threads(chosen.number)  # continue where it was interrupted
            found["chosen"] += steps_in(share, work, chosen)
    print(f"beside {busy} busy processes, steps/s, {seconds:g} s each in {rounds} rounds:")
    for name, steps in found.items():
        print(f"  {name:<10} {steps / seconds:7.1f}")
    best = max(steps for name, steps in found.items() if name != "chosen")
    print(f"  chosen / best fixed: {found['chosen'] / best:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20, help="for each of the three")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    for busy in (0, 1, 2):
        measure(options.seconds, busy, options.rounds)
