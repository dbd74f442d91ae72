"""A run's checkpoints: damage is noticed, strangers' files run nothing, old ones go."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.checkpoint.snapshot import Snapshot
from trafo.checkpoint.store import CheckpointStore, read_checkpoint, read_weights
from trafo.errors import FormatError, InputError, StorageError

FILES = ("model.safetensors", "training.safetensors", "state.json", "manifest.json")
MODEL = {"name": "transformer-lm", "fields": {"d_model": 4}}


def snapshot_of(number: float) -> Snapshot:
    moments = {"w/m": torch.full((3,), -number), "rng/torch": torch.arange(8, dtype=torch.uint8)}
    return Snapshot({"w": torch.full((2, 3), number)}, moments, {"w/t": int(number)})


def save(store: CheckpointStore, *steps: int, best: int | None = None) -> None:
    for step in steps:
        store.save(step, snapshot_of(step), {"step": step}, MODEL, is_best=step == best)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def seal(folder: Path) -> None:
    """Write a manifest that is right about the files, as a stranger would."""
    files = {
        name: {
            "bytes": (folder / name).stat().st_size,
            "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        }
        for name in FILES[:3]
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": files}))


def test_what_is_saved_is_read(store: CheckpointStore) -> None:
    save(store, 5)
    found = store.newest()
    assert (found.step, found.state) == (5, {"step": 5})
    assert found.snapshot.numbers == {"w/t": 5}
    assert found.snapshot.weights["w"].equal(torch.full((2, 3), 5.0))
    assert found.snapshot.moments.keys() == {"w/m", "rng/torch"}
    assert found.snapshot.moments["w/m"].equal(torch.full((3,), -5.0))
    weights, model = read_weights(store.path(5))
    assert weights["w"].equal(found.snapshot.weights["w"])
    assert model == MODEL


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", [cut_off, empty, flip_a_bit, Path.unlink])
def test_a_damaged_file_is_noticed_and_the_checkpoint_before_is_taken(
    store: CheckpointStore, capsys: pytest.CaptureFixture[str], file: str, harm: Any
) -> None:
    save(store, 1, 2)
    harm(store.path(2) / file)
    found = store.newest()
    assert found.step == 1
    assert found.snapshot.weights["w"].equal(torch.full((2, 3), 1.0))
    said = capsys.readouterr().err
    assert str(store.path(2)) in said
    assert said.count("\n") == 1
    assert "using the checkpoint before it" in said


def test_one_without_its_manifest_is_replaced_when_training_gets_there_again(
    store: CheckpointStore,
) -> None:
    save(store, 1, 2)
    for step in (1, 2):
        (store.path(step) / "manifest.json").unlink()
    with pytest.raises(InputError, match="no usable checkpoint"):
        store.newest()
    save(store, 2, 3)
    assert store.steps() == store.steps(complete=False) == [2, 3]


def test_when_all_are_damaged_the_error_says_so(store: CheckpointStore) -> None:
    save(store, 1, 2)
    for step in (1, 2):
        flip_a_bit(store.path(step) / "model.safetensors")
    with pytest.raises(InputError, match="no usable checkpoint"):
        store.newest()
    with pytest.raises(InputError, match="no usable checkpoint"):
        CheckpointStore(store.folder / "elsewhere").newest()


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_no_flipped_bit_of_a_manifest_changes_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int
) -> None:
    """Noticed, or without effect; never another error."""
    store = CheckpointStore(tmp_path_factory.getbasetemp() / "flipped")
    if not store.steps():
        save(store, 7)
    path = store.path(7) / "manifest.json"
    whole = path.read_bytes()
    data = bytearray(whole)
    data[int(place * len(data))] ^= 1 << bit
    path.write_bytes(data)
    try:
        found = read_checkpoint(store.path(7))
    except FormatError:
        pass
    else:
        assert found.step == 7
        assert found.snapshot.weights["w"].equal(torch.full((2, 3), 7.0))
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": dict.fromkeys(FILES, 3)},
        {"files": {name: {"bytes": 3} for name in FILES}},
        {"step": "2"},
        {"step": 3},
        {"format": "trafo run checkpoint 99"},
        {"format": None},
    ],
)
def test_strange_manifests_are_refused(store: CheckpointStore, change: dict[str, Any]) -> None:
    save(store, 2)
    path = store.path(2) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatError, match=r"manifest\.json"):
        read_checkpoint(store.path(2))


class Payload:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("file", FILES[:2])
@pytest.mark.parametrize("write", [pickle.dumps, torch.save])
def test_a_pickle_is_refused_and_runs_nothing(
    store: CheckpointStore, tmp_path: Path, file: str, write: Any
) -> None:
    save(store, 2)
    mark, path = tmp_path / "mark", store.path(2) / file
    if write is torch.save:
        torch.save(Payload(mark), path)
    else:
        path.write_bytes(pickle.dumps(Payload(mark)))
    seal(store.path(2))
    with pytest.raises(FormatError, match="not safetensors"):
        read_checkpoint(store.path(2))
    assert not mark.exists()
    assert pickle.loads(pickle.dumps(Payload(mark))) is None  # noqa: S301
    assert mark.exists(), "the payload does nothing, so the test shows nothing"


def header(length: int, **tensors: Any) -> bytes:
    """The beginning of a safetensors file; `length` 0 is the right one."""
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", length or len(text)) + text


ABSURD = {
    "a header longer than the file": header(2**63, w={}),
    "a header of no length": struct.pack("<Q", 0),
    "a tensor larger than the file": header(
        0, w={"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    ),
    "a shape that overflows": header(
        0, w={"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 0]}
    ),
    "offsets backwards": header(0, w={"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}),
    "an unknown type": header(0, w={"dtype": "F7", "shape": [0], "data_offsets": [0, 0]}),
    "no JSON": struct.pack("<Q", 4) + b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("data", ABSURD.values(), ids=list(ABSURD))
@pytest.mark.parametrize("file", FILES[:2])
def test_absurd_headers_are_refused(store: CheckpointStore, file: str, data: bytes) -> None:
    save(store, 2)
    (store.path(2) / file).write_bytes(data)
    seal(store.path(2))
    with pytest.raises(FormatError, match=file):
        read_checkpoint(store.path(2))


def test_the_newest_and_the_best_stay(store: CheckpointStore) -> None:
    assert store.best_step is None
    save(store, 1, 2, 3, best=1)
    assert store.steps() == [1, 2, 3]
    save(store, 4, 5)
    assert store.steps() == [1, 4, 5]
    assert store.best_step == 1
    save(store, 6, best=6)
    assert store.steps() == [5, 6]
    assert store.best_step == 6


@given(keep=st.integers(1, 4), best=st.lists(st.booleans(), min_size=1, max_size=7))
@settings(max_examples=15, deadline=None)
def test_kept_are_the_newest_k_and_the_best(
    tmp_path_factory: pytest.TempPathFactory, keep: int, best: list[bool]
) -> None:
    store = CheckpointStore(tmp_path_factory.mktemp("kept"), keep)
    for step, is_best in enumerate(best):
        store.save(step, snapshot_of(step), {}, MODEL, is_best=is_best)
    steps = range(len(best))
    marked = [step for step in steps if best[step]]
    assert store.steps() == sorted({*steps[-keep:], *marked[-1:]})


def test_damaged_later_ones_do_not_push_out_what_is_saved(store: CheckpointStore) -> None:
    """Training came back from them to step 1: what it saves now must stay."""
    save(store, 1, 8, 9)
    store.keep = 1
    for step in (8, 9):
        flip_a_bit(store.path(step) / "model.safetensors")
    for step in (2, 3):
        save(store, step)
        assert store.newest().step == step
    save(store, 8)
    assert store.newest().step == 8
    assert 3 not in store.steps()


def test_only_sound_ones_count_as_kept(store: CheckpointStore) -> None:
    save(store, 1, 2)
    flip_a_bit(store.path(2) / "training.safetensors")
    later = CheckpointStore(store.folder)  # which has not written them itself
    save(later, 3)
    assert later.steps() == [1, 2, 3]
    save(later, 4)
    assert later.steps() == [3, 4]


def test_rotation_does_not_follow_links(store: CheckpointStore, tmp_path: Path) -> None:
    save(store, 1)
    store.path(1).rename(tmp_path / "elsewhere")
    store.path(1).symlink_to(tmp_path / "elsewhere")
    save(store, 2, 3, 4)
    assert read_checkpoint(tmp_path / "elsewhere").step == 1
    (tmp_path / "elsewhere" / "manifest.json").unlink()
    store.remove_leftovers()
    assert (tmp_path / "elsewhere" / "model.safetensors").exists()


def test_what_a_kill_left_is_removed_and_nothing_else(store: CheckpointStore) -> None:
    save(store, 1, best=1)
    leftovers = [store.folder / ".step-00000002.0123456789ab.tmp"]
    for path in leftovers:
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"half")
    mine = [store.folder / "notes", store.folder / ".step-notes.tmp"]
    for path in mine:
        path.mkdir()
    assert store.newest().step == 1
    store.remove_leftovers()
    assert not any(path.exists() for path in leftovers)
    assert all(path.exists() for path in mine)
    assert store.steps() == [1]
    assert store.best_step == 1


@pytest.mark.parametrize("content", ["", "5", "[]", "{}", '{"step": 99}', '{"step": "1"}'])
def test_an_unreadable_note_of_the_best_is_no_note(store: CheckpointStore, content: str) -> None:
    save(store, 1)
    (store.folder / "best.json").write_text(content)
    assert store.best_step is None


def test_a_full_disk_leaves_what_was_there(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1)
    with monkeypatch.context() as patch:

        def full(_descriptor: int) -> None:
            raise OSError(28, os.strerror(28))

        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"no space left on device.*free some space"):
            save(store, 2)
    assert store.newest().step == 1
    assert [path.name for path in store.folder.iterdir()] == ["step-00000001"]
