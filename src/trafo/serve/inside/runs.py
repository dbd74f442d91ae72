"""Runs and their metrics, also while they train.

The runs are those in the folders of the served models. A name in a request is looked up among
them; it never becomes a path.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from trafo.checkpoint.locate import RUN_CONFIG, find_kind
from trafo.runtime.json_text import parse_json
from trafo.serve.errors import ApiError
from trafo.serve.models import Models, ServedModel
from trafo.serve.protocol import parse_count
from trafo.serve.service import json_response, service_of
from trafo.training.run import Run

STOPPED_AFTER_SECONDS = 120.0
"""seconds since the last metrics, after which a run without a final record counts as stopped"""
_MAX_METRICS_BYTES = 4 << 20
"""of metrics in one answer"""
_MAX_SAMPLE_BYTES = 30_000
"""bytes of samples.txt, the newest"""


async def list_runs(http: HttpRequest) -> Response:
    """`GET /inside/runs`: names, newest first, and which of them train."""
    models = service_of(http).models
    return await json_response(
        lambda: {"runs": [_about(*each) for each in find_runs(models).items()]}
    )


async def one_run(http: HttpRequest) -> Response:
    """`GET /inside/runs/NAME?after=CURSOR`: metrics after a cursor, and the newest samples."""
    models, cursor = service_of(http).models, http.query_params.get("after", "")
    return await json_response(lambda: _read(models, http.path_params["name"], cursor))


def _read(models: Models, name: str, cursor: str) -> dict[str, Any]:
    run = find_runs(models).get(name)
    if run is None:
        raise ApiError(404, f"there is no run {name!r}", param="name", code="run_not_found")
    tail = read_tail(run.metrics_file, cursor)
    return _about(name, run) | vars(tail) | {"samples": _newest_samples(run.samples_file)}


def find_runs(models: Models) -> dict[str, Run]:
    """Find all runs in the folders of the served ones and one level deeper, newest first."""
    names: dict[Path, str] = {}
    for folder in sorted(set[Path]().union(*map(_folders, models))):
        for depth in ("*", "*/*"):
            for config in folder.glob(f"{depth}/{RUN_CONFIG}"):
                path = config.parent
                if not path.is_symlink():
                    names.setdefault(path, path.relative_to(folder).as_posix())
    newest = sorted(names, key=lambda path: -_changed(Run(path)))
    return {names[path]: Run(path) for path in newest}


def _folders(served: ServedModel) -> set[Path]:
    """Return where its run and the link to it are: `runs/latest` may be `runs/demo/model`."""
    run = served.bundle.source.resolve().parent.parent
    if not (run / RUN_CONFIG).is_file():
        return set()
    is_run = find_kind(served.path) == "run"
    return {run.parent, served.path.absolute().parent.resolve()} if is_run else {run.parent}


@dataclass(frozen=True)
class MetricsTail:
    """Records after a cursor, or from the first one if the file is a new one."""

    records: list[dict[str, Any]]
    cursor: str
    from_start: bool


def read_tail(path: Path, cursor: str) -> MetricsTail:
    """Read the complete lines after a cursor (file and offset): a kill may cut the last one off."""
    try:
        with path.open("rb") as file:
            identity = str(path.stat().st_ino)
            known, _, place = cursor.partition(":")
            offset = parse_count(place) if known == identity else 0
            if offset is None or offset > path.stat().st_size:
                offset = 0
            file.seek(offset)
            data = file.read(_MAX_METRICS_BYTES)
    except OSError:
        return MetricsTail([], "", True)
    whole = data[: data.rfind(b"\n") + 1]
    records = [record for line in whole.splitlines() if (record := _record(line)) is not None]
    return MetricsTail(records, f"{identity}:{offset + len(whole)}", offset == 0)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        # NaN and Infinity are not JSON: a browser could not read them.
        record = parse_json(line, parse_constant=lambda _: None)
    except ValueError:
        return None
    is_record = isinstance(record, dict) and isinstance(record.get("step"), int)
    return record if is_record else None


def _about(name: str, run: Run) -> dict[str, Any]:
    age = time.time() - _changed(run)
    is_done = _last_kind(run.metrics_file) == "final"
    return {
        "name": name,
        "training": not is_done and age < STOPPED_AFTER_SECONDS,
        "seconds_since": max(0.0, age),
    }


def _changed(run: Run) -> float:
    for path in (run.metrics_file, run.config_file):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0


def _last_kind(path: Path) -> str | None:
    lines = _end_of(path, 2000).splitlines()
    record = _record(lines[-1].encode()) if lines else None
    return None if record is None else record.get("kind")


def _newest_samples(path: Path) -> list[dict[str, str]]:
    """Split samples by step, the newest last: each begins with a line `--- step 20 ---`."""
    samples: list[dict[str, str]] = []
    for line in _end_of(path, _MAX_SAMPLE_BYTES).splitlines(keepends=True):
        if line.startswith("--- ") and line.rstrip().endswith(" ---"):
            samples.append({"title": line.strip().strip("-").strip(), "text": ""})
        elif samples:
            samples[-1]["text"] += line
    return samples


def _end_of(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


ROUTES = [
    Route("/inside/runs", list_runs),
    Route("/inside/runs/{name:path}", one_run),
]
