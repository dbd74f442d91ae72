"""Command lines in processes of their own, forked from one that has imported what they need.

A new interpreter takes seconds to import torch. The tests that use this are about what happens
between processes, and to files, when one of them is killed; not about how it starts.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

FORK_AFTER_IMPORTS = "forkserver"
_CONTEXT = get_context(FORK_AFTER_IMPORTS)
_PRELOADED = ["trafo.training.start", "trafo.cli.train", "torch.distributed.fsdp"]
_CONTEXT.set_forkserver_preload(_PRELOADED)


def start_trafo(
    arguments: list[str], said: Path, environment: Mapping[str, str] | None = None
) -> ForkServerProcess:
    """Start `trafo ARGUMENTS --quiet`; what it prints goes to the file `said`."""
    settings = {**os.environ, **(environment or {})}
    process = _CONTEXT.Process(target=_run, args=(arguments, said, settings), daemon=True)
    process.start()
    return process


def run_ranks(arguments: list[str], said: Path, world: int = 2) -> None:
    """One process for each rank, with the settings that torchrun would make."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    processes = []
    for rank in map(str, range(world)):
        settings = {**shared, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"}
        processes.append(start_trafo(arguments, said, settings))
    for process in processes:
        process.join(timeout=240)
        assert process.exitcode == 0, said.read_text()


def _run(arguments: list[str], said: Path, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    with said.open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    from trafo.cli.main import main

    sys.exit(main([*arguments, "--quiet"]))
