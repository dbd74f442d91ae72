"""metrics.jsonl survives kills, and becomes a picture."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.errors import InputError, StorageError
from trafo.training.curve import draw_curves
from trafo.training.metrics import MetricsFile, Record, read_metrics


def entry(step: int, kind: str = "train") -> Record:
    loss = 5.0 - 0.1 * step
    return {"step": step, "kind": kind, "loss": loss, "bits_per_byte": loss, "seconds": 2.0 * step}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, *steps: int, after: int = 0) -> None:
    metrics = MetricsFile(path, after)
    for step in steps:
        metrics.add(entry(step))
    metrics.close()


def test_what_is_added_is_there_at_once(path: Path) -> None:
    metrics = MetricsFile(path, 0)
    metrics.add(entry(1))
    assert read_metrics(path) == [entry(1)]
    metrics.close()


@given(cut=st.integers(0, 400))
def test_a_line_that_was_cut_off_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    lines = [json.dumps(entry(step)) for step in range(1, 6)]
    whole = "".join(line + "\n" for line in lines)
    path.write_text(whole[:cut])
    kept = whole[: cut + 1].count("\n") if cut < len(whole) else len(lines)
    assert [record["step"] for record in read_metrics(path)] == list(range(1, kept + 1))
    # Whoever goes on writes whole lines again.
    write(path, kept + 1, after=kept)
    assert [record["step"] for record in read_metrics(path)] == list(range(1, kept + 2))


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        (lambda lines: lines, 0),
        (lambda lines: [*lines[:-1], lines[-1][:9]], 0),  # a kill
        (lambda lines: [*lines[:2], lines[2][:9] + "\n", *lines[3:]], 1),
        (lambda lines: ["\0" * 9 + "\n"] * 2 + lines[2:], 2),
        (lambda lines: lines[:1], 2),
        (lambda lines: [], 3),
    ],
)
def test_damage_is_said(
    path: Path, capsys: pytest.CaptureFixture[str], damage: Any, missing: int
) -> None:
    """Three records of four belong to the checkpoint."""
    write(path, 1, 2, 3, 4)
    path.write_text("".join(damage(path.read_text().splitlines(keepends=True))))
    MetricsFile(path, after_step=3, num_records=3).close()
    said = capsys.readouterr().err
    assert (f"{path} is damaged: {missing} records" in said) == bool(missing)
    assert len(read_metrics(path)) == 3 - missing


def test_what_a_full_disk_refuses_is_written_later(path: Path) -> None:
    write(path, 1)
    whole = path.read_bytes()
    metrics = MetricsFile(path, 1)
    with resource_limit(resource.RLIMIT_FSIZE, len(whole) + 10):
        for step in (2, 3):
            with pytest.raises(StorageError, match="too large"):
                metrics.add(entry(step))
    metrics.add(entry(4))
    metrics.close()
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3, 4]


@contextmanager
def resource_limit(which: int, limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def test_later_steps_are_dropped_when_going_on(path: Path) -> None:
    write(path, 1, 2, 3, 4, 5)
    write(path, 4, after=3)
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3, 4]


def test_lines_that_are_no_entries_are_left_out(path: Path) -> None:
    sound = {"step": 2, "kind": "train", "loss": 1.5, "seconds": 3}
    wrong = [{"step": "1"}, {"kind": 1}, {"loss": None}, {"loss": "1"}]
    wrong += [{"seconds": 10**400}, {"seconds": math.inf}]
    lines = [sound, *(sound | change for change in wrong)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(b'[]\n5\nnull\n{"loss": 1}\n\xff\xfe\n' + text.encode())
    assert read_metrics(path) == [sound]


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        read_metrics(path)


def run(length: int) -> list[Record]:
    steps = range(1, length + 1)
    return [entry(step, kind) for step in steps for kind in ("train", "validation")]


def ink(path: Path) -> float:
    """The share of a picture that is not white."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    picture = matplotlib.image.imread(path)
    assert picture.shape[0] > 300
    assert picture.shape[1] > 1000
    return float((picture[..., :3].min(axis=2) < 0.9).mean())


def red(path: Path) -> int:
    """Pixels of the colour in which a validation loss is drawn."""
    picture = matplotlib.image.imread(path)[..., :3]
    return int(((picture[..., 0] > 0.7) & (picture[..., 1:].max(axis=2) < 0.4)).sum())


def test_one_run_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "loss.png"
    draw_curves({"a run": run(30)}, path)
    assert 0.005 < ink(path) < 0.5
    with_validation = red(path)
    draw_curves({"a run": [record for record in run(30) if record["kind"] == "train"]}, path)
    assert red(path) == 0 < with_validation
    draw_curves({"a": [*run(30), run(30)[-1] | {"seconds": 1e308, "loss": 1e308}]}, path)
    assert red(path) > 0


def test_several_runs_are_drawn(tmp_path: Path) -> None:
    one, several = tmp_path / "one.png", tmp_path / "several.png"
    draw_curves({"a": run(30), "b": []}, one)
    draw_curves({"a": run(30), "b": [r | {"loss": r["loss"] + 1} for r in run(20)]}, several)
    assert 0.005 < ink(one) < ink(several) < 0.5


def test_a_single_step_can_be_drawn(tmp_path: Path) -> None:
    draw_curves({"short": run(1)}, tmp_path / "loss.png")
    assert ink(tmp_path / "loss.png") > 0.005


@pytest.mark.parametrize("records", [[], [entry(1, "validation")], [{"step": 3}]])
def test_nothing_to_draw(tmp_path: Path, records: list[Record]) -> None:
    with pytest.raises(InputError, match="nothing to plot"):
        draw_curves({"empty": records}, tmp_path / "loss.png")
    assert not (tmp_path / "loss.png").exists()
