"""The models that are served, by name: language models with an engine each, and translators.

With `--follow`, newer checkpoints of their runs replace them as they appear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trafo.checkpoint.bundle import Bundle, load_bundle
from trafo.checkpoint.locate import CHECKPOINTS, find_kind
from trafo.checkpoint.store import CheckpointStore
from trafo.errors import InputError, TrafoError
from trafo.generate.chat_template import ChatTemplate
from trafo.generate.engine import build_engine
from trafo.generate.request import vocab_size
from trafo.runtime.threads import in_short_thread, in_short_thread_async
from trafo.serve.config import ServeConfig
from trafo.serve.errors import ApiError, print_message
from trafo.serve.worker import EngineThread, Worker

Kind = Literal["language", "translation"]
_ENDPOINTS: dict[Kind, str] = {"language": "/v1/completions", "translation": "/v1/translations"}
FOLLOW_SECONDS = 2.0
"""between two checks for newer checkpoints"""


@dataclass
class ServedModel:
    """A model by its name, with the workers that run it if it is a language model."""

    name: str
    path: Path
    bundle: Bundle
    workers: list[Worker] = field(default_factory=list)
    """the first takes new requests, those of older checkpoints finish theirs"""
    template: ChatTemplate = field(default_factory=ChatTemplate)
    dtype: str = "float32"
    """of the weights that compute"""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def worker(self) -> Worker:
        """The worker that takes new requests."""
        return self.workers[0]

    @property
    def kind(self) -> Kind:
        """What it can do."""
        return "translation" if self.bundle.model.has_source else "language"

    def card(self) -> dict[str, Any]:
        """Return what `/v1/models` says about it: OpenAI's fields, then ours."""
        model, sizes = self.bundle.model, {}
        if self.kind == "language":
            sizes = {"context_length": model.context_length, "vocab_size": vocab_size(model)}
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "trafo",
            "kind": self.kind,
            **sizes,
            "step": self.bundle.step,
            "dtype": self.dtype,
        }


class Models:
    """All models, in the order of the command line."""

    def __init__(self, served: Sequence[ServedModel]) -> None:
        self._by_name = {each.name: each for each in served}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    @property
    def workers(self) -> list[Worker]:
        """The workers of all of them."""
        return [worker for served in self for worker in served.workers]

    def get(self, name: str | None, kind: Kind | None = None) -> ServedModel:
        """Return the model of that name, or without a name the first of the kind."""
        if name is not None and name not in self._by_name:
            what = f"the model {name!r} does not exist; served: {', '.join(self._by_name)}"
            raise ApiError(404, what, param="model", code="model_not_found")
        candidates = list(self) if name is None else [self._by_name[name]]
        for served in candidates:
            if kind in (None, served.kind):
                return served
        other = candidates[0]
        what = f"{other.name} is a {other.kind} model; use {_ENDPOINTS[other.kind]}"
        raise ApiError(400, what, param="model", code="wrong_kind_of_model")


def load_models(paths: Sequence[Path], config: ServeConfig) -> Models:
    """Load every model under the name of its path: `runs/latest` is `latest`.

    Where two have the same name, the parent's comes first: `runs/latest`.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("the same run is given twice", hint="give each one once")
    places = [_place(path) for path in paths]
    names = [place.name for place in places]
    unique = [
        name if names.count(name) == 1 else f"{place.parent.name}/{name}"
        for name, place in zip(names, places, strict=True)
    ]
    thread = EngineThread()
    pairs = zip(unique, paths, strict=True)
    return Models([in_short_thread(partial(_load, *each, config, thread)) for each in pairs])


def _place(path: Path) -> Path:
    """Resolve its folder, but not its own name, which may be a link's."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _load(name: str, path: Path, config: ServeConfig, thread: EngineThread) -> ServedModel:
    """Load a model and, for a language model, build the engine that will run on the thread."""
    bundle = load_bundle(path.resolve())  # the link `latest` may point to another run later
    dtype = str(bundle.model.head_weight.dtype).removeprefix("torch.")
    if bundle.model.has_source:
        return ServedModel(name, path, bundle, dtype=dtype)
    worker = Worker(build_engine(bundle.model, config.engine), config.max_queue, thread)
    dtype = "int8" if config.engine.weights == "int8" else dtype
    return ServedModel(name, path, bundle, [worker], ChatTemplate.of(bundle.tokenizer), dtype)


async def follow_runs(
    models: Models, config: ServeConfig, interval: float = FOLLOW_SECONDS
) -> None:
    """Load newer checkpoints as they appear, to try a model while it trains, until cancelled.

    A newer checkpoint gets its own engine, and running requests finish on the older one.
    """
    finishing: set[asyncio.Task[None]] = set()
    tried: dict[str, int] = {}
    while True:
        await asyncio.sleep(interval)
        for served in models:
            step = newest_step(served)
            if step is not None and step > tried.get(served.name, served.bundle.step or 0):
                tried[served.name] = step  # once, even if it is damaged
                old = await reload_checkpoint(served, config)
                if old is not None:
                    task = asyncio.create_task(_stop_when_idle(served, old, interval))
                    finishing.add(task)
                    task.add_done_callback(finishing.discard)


def newest_step(served: ServedModel) -> int | None:
    """Return the step of the run's newest checkpoint."""
    if find_kind(served.path) != "run":
        return None
    try:
        return max(CheckpointStore(_run_folder(served) / CHECKPOINTS).steps(), default=None)
    except OSError:  # the run is being deleted
        return None


async def reload_checkpoint(served: ServedModel, config: ServeConfig) -> Worker | None:
    """Load the newest checkpoint; return the worker that it replaces, if there is one."""
    run, old = _run_folder(served), next(iter(served.workers), None)
    thread = EngineThread() if old is None else old.thread
    try:
        newer = await in_short_thread_async(lambda: _load(served.name, run, config, thread))
    except (TrafoError, OSError) as error:  # perhaps half deleted; a later one will come
        print_message(f"{served.name}: cannot load the newer checkpoint: {error}")
        return None
    if newer.bundle.step == served.bundle.step:  # the newer one is damaged
        return None
    for worker in newer.workers:
        worker.start()
    served.bundle, served.workers = newer.bundle, [*newer.workers, *served.workers]
    print_message(f"{served.name}: now at step {served.bundle.step:,}")
    return old


def _run_folder(served: ServedModel) -> Path:
    """Return the run that its checkpoint lies in."""
    return served.bundle.source.parent.parent


async def _stop_when_idle(served: ServedModel, worker: Worker, interval: float) -> None:
    while worker.num_active:
        await asyncio.sleep(interval)
    await asyncio.to_thread(worker.stop)
    served.workers.remove(worker)
