"""Metrics read piece by piece, while a training writes them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.serve.inside.runs import find_runs, read_tail
from trafo.serve.models import Models, ServedModel


@given(st.lists(st.integers(1, 40), max_size=6))
def test_pieces_are_the_whole_wherever_the_file_is_cut(tmp_path_factory, cuts):
    records = [{"step": step, "kind": "train", "loss": step / 3} for step in range(4)]
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    found, cursor, place = [], "", 0
    for size in [*cuts, len(data)]:
        with path.open("ab") as file:
            file.write(data[place : place + size])
        place += size
        tail = read_tail(path, cursor)
        cursor = tail.cursor
        found += tail.records
    assert found == records


def test_a_new_file_is_read_from_the_start(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    cursor = read_tail(path, "").cursor
    path.write_text('{"step": 1}\n')  # a resume dropped a step
    tail = read_tail(path, cursor)
    assert tail.from_start
    assert tail.records == [{"step": 1}]


@pytest.mark.parametrize("place", ["²", "٣", "9" * 5000, "9" * 18, "-1", "x"])
def test_a_cursor_that_is_none_reads_from_the_start(tmp_path, place):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    tail = read_tail(path, f"{path.stat().st_ino}:{place}")
    assert tail.from_start
    assert tail.records == [{"step": 1}]


def test_what_is_not_json_for_a_browser_is_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": NaN}\nnonsense\n[]\n')
    assert read_tail(path, "").records == [{"step": 1, "loss": None}]
    assert read_tail(tmp_path / "none", "").records == []


def test_a_link_shows_the_runs_beside_it(tmp_path, bundle):
    """`make demo` writes `runs/demo/model`, and `runs/latest` points there."""
    for name in ("demo/model", "stories"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text("steps: 10\n")
    checkpoint = tmp_path / "demo" / "model" / "checkpoints" / "step-00000007"
    checkpoint.mkdir(parents=True)
    (tmp_path / "latest").symlink_to("demo/model")
    served = ServedModel("latest", tmp_path / "latest", replace(bundle, source=checkpoint))
    assert set(find_runs(Models([served]))) == {"demo/model", "stories"}


def test_a_name_is_never_a_path(client):
    for name in ("../../etc/passwd", "%2e%2e/%2e%2e/etc", "/etc", "x"):
        assert client.get(f"/inside/runs/{name}").status_code == 404
    assert client.get("/inside/runs").json() == {"runs": []}
