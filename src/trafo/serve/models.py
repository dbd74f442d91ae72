"""The models that are served, by name."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trafo.checkpoint.bundle import Bundle, load_bundle
from trafo.generate.decode import vocab_size
from trafo.generate.engine import build_engine
from trafo.serve.errors import ApiError
from trafo.serve.worker import Worker


@dataclass
class Served:
    """One model and the engine that runs it."""

    name: str
    bundle: Bundle
    worker: Worker
    created: int = field(default_factory=lambda: int(time.time()))

    def card(self) -> dict[str, Any]:
        """What `/v1/models` says about it: OpenAI's fields, then ours."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "trafo",
            "kind": "language",
            "context_length": self.bundle.model.context_length,
            "vocab_size": vocab_size(self.bundle.model),
            "step": self.bundle.step,
        }


class Models:
    """All models, in the order in which they were given."""

    def __init__(self, served: list[Served]) -> None:
        self._by_name = {each.name: each for each in served}

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def get(self, name: str | None) -> Served:
        """The model of that name; without a name, the first."""
        if name is None:
            return next(iter(self._by_name.values()))
        if name not in self._by_name:
            known = ", ".join(self._by_name)
            what = f"the model {name!r} does not exist; served: {known}"
            raise ApiError(404, what, param="model", code="model_not_found")
        return self._by_name[name]


def load_models(paths: list[Path]) -> Models:
    """Load every model; two folders of the same name are told apart by their parents'."""
    resolved = [path.resolve() for path in paths]
    names = [path.name for path in resolved]
    unique = [
        name if names.count(name) == 1 else f"{path.parent.name}/{name}"
        for name, path in zip(names, resolved, strict=True)
    ]
    return Models([_load(name, path) for name, path in zip(unique, paths, strict=True)])


def _load(name: str, path: Path) -> Served:
    bundle = load_bundle(path)
    return Served(name, bundle, Worker(build_engine(bundle.model)))
