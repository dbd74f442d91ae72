"""Loads newer checkpoints of a run as they appear, to try a model while it trains.

A newer checkpoint gets its own engine; running requests finish on the older one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from trafo.checkpoint.bundle import load_bundle
from trafo.checkpoint.locate import CHECKPOINTS, find_kind
from trafo.checkpoint.store import CheckpointStore
from trafo.errors import TrafoError
from trafo.runtime.threads import in_short_thread_async
from trafo.serve.config import ServeConfig
from trafo.serve.messages import tell
from trafo.serve.models import LanguageModel, Models, Served, build_language_model
from trafo.serve.worker import Worker

INTERVAL = 2.0
"""seconds between two checks"""


async def follow(models: Models, config: ServeConfig, interval: float = INTERVAL) -> None:
    """Look for newer checkpoints until cancelled."""
    finishing: set[asyncio.Task[None]] = set()
    tried: dict[str, int] = {}
    while True:
        await asyncio.sleep(interval)
        for served in models:
            step = newest_step(served)
            if step is not None and step > tried.get(served.name, served.bundle.step or 0):
                tried[served.name] = step  # once, even if it is damaged
                old = await take_up(served, config)
                if old is not None and isinstance(served, LanguageModel):
                    task = asyncio.create_task(_finish(served, old, interval))
                    finishing.add(task)
                    task.add_done_callback(finishing.discard)


def newest_step(served: Served) -> int | None:
    """The step of the run's newest checkpoint."""
    if find_kind(served.path) != "run":
        return None
    try:
        return max(CheckpointStore(_run(served) / CHECKPOINTS).steps(), default=None)
    except OSError:  # the run is being deleted
        return None


async def take_up(served: Served, config: ServeConfig) -> Worker | None:
    """Load the newest checkpoint; returns the worker that it replaces, if there is one."""
    old, before = None, served.bundle.step
    try:
        if isinstance(served, LanguageModel):
            old = await _take_up_language(served, config)
        else:
            run = _run(served)
            served.bundle = await in_short_thread_async(lambda: load_bundle(run))
    except (TrafoError, OSError) as error:  # perhaps half deleted; a later one will come
        tell(f"{served.name}: cannot load the newer checkpoint: {error}")
        return None
    if served.bundle.step != before:
        tell(f"{served.name}: now at step {served.bundle.step:,}")
    return old


async def _take_up_language(served: LanguageModel, config: ServeConfig) -> Worker | None:
    run, old = _run(served), served.worker
    newer = await in_short_thread_async(
        lambda: build_language_model(served.name, run, load_bundle(run), config, old.thread)
    )
    if newer.bundle.step == served.bundle.step:  # the newer one is damaged
        return None
    newer.worker.start()
    served.older.append(old)
    served.bundle, served.worker = newer.bundle, newer.worker
    return old


def _run(served: Served) -> Path:
    """The run that its checkpoint lies in."""
    return served.bundle.source.parent.parent


async def _finish(served: LanguageModel, worker: Worker, interval: float) -> None:
    while worker.num_active:
        await asyncio.sleep(interval)
    await asyncio.to_thread(worker.stop)
    served.older.remove(worker)
