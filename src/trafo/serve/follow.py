"""Loads newer checkpoints of a run as they appear, so that a training can be tried while it runs.

A newer checkpoint gets an engine of its own; what runs on the older one is finished there first.
"""

from __future__ import annotations

import asyncio

from trafo.checkpoint.locate import CHECKPOINTS, find_kind
from trafo.checkpoint.store import CheckpointStore
from trafo.errors import TrafoError
from trafo.runtime.short_thread import in_short_thread_async
from trafo.serve.config import ServeConfig
from trafo.serve.messages import tell
from trafo.serve.models import LanguageModel, Models, load_language_model
from trafo.serve.worker import Worker

INTERVAL = 2.0
"""seconds between two looks"""


async def follow(models: Models, config: ServeConfig, interval: float = INTERVAL) -> None:
    """Look for newer checkpoints until cancelled."""
    finishing: set[asyncio.Task[None]] = set()
    while True:
        await asyncio.sleep(interval)
        for served in models.language_models:
            step = newest_step(served)
            if step is not None and step > (served.bundle.step or 0):
                old = await take_up(served, config)
                if old is not None:
                    task = asyncio.create_task(_finish(old, interval))
                    finishing.add(task)
                    task.add_done_callback(finishing.discard)


def newest_step(served: LanguageModel) -> int | None:
    """The step of the run's newest checkpoint."""
    if find_kind(served.path) != "run":
        return None
    return max(CheckpointStore(served.path / CHECKPOINTS).steps(), default=None)


async def take_up(served: LanguageModel, config: ServeConfig) -> Worker | None:
    """Load the newest checkpoint; returns the worker that it replaces."""
    try:
        newer = await in_short_thread_async(
            lambda: load_language_model(served.name, served.path, config, served.worker.thread)
        )
    except (TrafoError, OSError) as error:  # half deleted, perhaps: the next look finds another
        tell(f"{served.name}: cannot load the newer checkpoint: {error}")
        return None
    newer.worker.start()
    old = served.worker
    served.bundle, served.worker = newer.bundle, newer.worker
    tell(f"{served.name}: now at step {served.bundle.step:,}")
    return old


async def _finish(worker: Worker, interval: float) -> None:
    while worker.num_active:
        await asyncio.sleep(interval)
    await asyncio.to_thread(worker.stop)
