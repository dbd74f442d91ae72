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
from typing import Any, TypeVar

from trafo.checkpoint.bundle import Bundle, load_bundle
from trafo.checkpoint.locate import CHECKPOINTS, find_kind
from trafo.checkpoint.store import CheckpointStore
from trafo.errors import InputError, TrafoError
from trafo.generate.chat_template import ChatTemplate
from trafo.generate.engine import build_engine
from trafo.generate.request import vocab_size
from trafo.models import SequenceModel
from trafo.runtime.threads import in_short_thread, in_short_thread_async
from trafo.serve.config import ServeConfig
from trafo.serve.errors import ApiError, print_message
from trafo.serve.worker import EngineThread, Worker

FOLLOW_SECONDS = 2.0
"""between two checks for newer checkpoints"""


@dataclass
class LanguageModel:
    """A language model, the engine that runs it, and how it chats."""

    name: str
    path: Path
    bundle: Bundle
    worker: Worker
    template: ChatTemplate
    dtype: str = "float32"
    """of the weights that compute"""
    created: int = field(default_factory=lambda: int(time.time()))
    older: list[Worker] = field(default_factory=list)
    """workers of older checkpoints, which finish their requests"""

    kind, endpoint = "language", "/v1/completions"

    @property
    def workers(self) -> list[Worker]:
        """All workers that may have requests."""
        return [self.worker, *self.older]

    def card(self) -> dict[str, Any]:
        """Return what `/v1/models` says about it: OpenAI's fields, then ours."""
        model = self.bundle.model
        return _card(self) | {
            "context_length": model.context_length,
            "vocab_size": vocab_size(model),
            "step": self.bundle.step,
            "dtype": self.dtype,
        }


@dataclass
class TranslationModel:
    """A translation model."""

    name: str
    path: Path
    bundle: Bundle
    created: int = field(default_factory=lambda: int(time.time()))

    kind, endpoint = "translation", "/v1/translations"

    def card(self) -> dict[str, Any]:
        """Return what `/v1/models` says about it."""
        return _card(self) | {"step": self.bundle.step, "dtype": _dtype(self.bundle.model)}


Served = LanguageModel | TranslationModel
_Kind = TypeVar("_Kind", LanguageModel, TranslationModel)


def _card(served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "trafo",
        "kind": served.kind,
    }


def _dtype(model: SequenceModel) -> str:
    return str(model.head_weight.dtype).removeprefix("torch.")


class Models:
    """All models, in the order of the command line."""

    def __init__(self, served: Sequence[Served]) -> None:
        self._by_name = {each.name: each for each in served}

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_name.values())

    @property
    def language_models(self) -> list[LanguageModel]:
        """Those with an engine."""
        return [served for served in self if isinstance(served, LanguageModel)]

    @property
    def workers(self) -> list[Worker]:
        """The workers of all of them."""
        return [worker for served in self.language_models for worker in served.workers]

    def get(self, name: str | None) -> Served:
        """Return the model of that name; without a name, the first."""
        if name is None:
            return next(iter(self))
        if name not in self._by_name:
            what = f"the model {name!r} does not exist; served: {', '.join(self._by_name)}"
            raise ApiError(404, what, param="model", code="model_not_found")
        return self._by_name[name]

    def language(self, name: str | None) -> LanguageModel:
        """Return a language model; without a name, the first."""
        return self._of_kind(LanguageModel, name)

    def translation(self, name: str | None) -> TranslationModel:
        """Return a translation model; without a name, the first."""
        return self._of_kind(TranslationModel, name)

    def _of_kind(self, kind: type[_Kind], name: str | None) -> _Kind:
        for served in self if name is None else [self.get(name)]:
            if isinstance(served, kind):
                return served
        served = self.get(name)
        what = f"{served.name} is a {served.kind} model; use {served.endpoint}"
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
    """Its folder, resolved, and its own name, which may be a link's."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _load(name: str, path: Path, config: ServeConfig, thread: EngineThread) -> Served:
    """Load a model; if it is a language model, build its engine, which will run on the thread."""
    bundle = load_bundle(path.resolve())  # the link `latest` may point to another run later
    if bundle.model.has_source:
        return TranslationModel(name, path, bundle)
    worker = Worker(build_engine(bundle.model, config.engine), config.max_queue, thread)
    dtype = "int8" if config.engine.weights == "int8" else _dtype(bundle.model)
    return LanguageModel(name, path, bundle, worker, ChatTemplate.of(bundle.tokenizer), dtype)


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
                if old is not None and isinstance(served, LanguageModel):
                    task = asyncio.create_task(_stop_when_idle(served, old, interval))
                    finishing.add(task)
                    task.add_done_callback(finishing.discard)


def newest_step(served: Served) -> int | None:
    """Return the step of the run's newest checkpoint."""
    if find_kind(served.path) != "run":
        return None
    try:
        return max(CheckpointStore(_run_folder(served) / CHECKPOINTS).steps(), default=None)
    except OSError:  # the run is being deleted
        return None


async def reload_checkpoint(served: Served, config: ServeConfig) -> Worker | None:
    """Load the newest checkpoint; return the worker that it replaces, if there is one."""
    run, old = _run_folder(served), getattr(served, "worker", None)
    thread = EngineThread() if old is None else old.thread
    try:
        newer = await in_short_thread_async(lambda: _load(served.name, run, config, thread))
    except (TrafoError, OSError) as error:  # perhaps half deleted; a later one will come
        print_message(f"{served.name}: cannot load the newer checkpoint: {error}")
        return None
    if newer.bundle.step == served.bundle.step:  # the newer one is damaged
        return None
    if isinstance(served, LanguageModel) and isinstance(newer, LanguageModel):
        newer.worker.start()
        served.older.append(served.worker)
        served.worker = newer.worker
    served.bundle = newer.bundle
    print_message(f"{served.name}: now at step {served.bundle.step:,}")
    return old


def _run_folder(served: Served) -> Path:
    """Return the run that its checkpoint lies in."""
    return served.bundle.source.parent.parent


async def _stop_when_idle(served: LanguageModel, worker: Worker, interval: float) -> None:
    while worker.num_active:
        await asyncio.sleep(interval)
    await asyncio.to_thread(worker.stop)
    served.older.remove(worker)
