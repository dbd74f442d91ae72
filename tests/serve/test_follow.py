"""A checkpoint that grows newer is taken up while the service runs."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from trafo.checkpoint.bundle import describe_model
from trafo.checkpoint.snapshot import Snapshot
from trafo.checkpoint.store import CheckpointStore
from trafo.generate import GenerationConfig
from trafo.generate.engine import EngineConfig
from trafo.generate.request import Request
from trafo.serve.config import ServeConfig
from trafo.serve.follow import newest_step, take_up
from trafo.serve.models import load_language_model, load_models

CONFIG = ServeConfig(engine=EngineConfig(kernel="readable"))


@pytest.fixture
def run(tmp_path, bundle):
    """A run's folder: a tokenizer and a checkpoint of step 7."""
    bundle.tokenizer.save(tmp_path / "tokenizer")
    save(tmp_path, bundle.model, 7)
    return tmp_path


def save(run: Path, model, step):
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    store = CheckpointStore(run / "checkpoints")
    store.save(step, Snapshot(weights, {}, {}), {}, describe_model(model.config))


def test_newer_weights_answer_new_requests(run, bundle):
    async def scenario():
        served = load_language_model("tiny", run, CONFIG)
        served.worker.start()
        assert newest_step(served) == served.bundle.step == 7
        running = served.worker.submit([Request([1, 2], GenerationConfig(max_new_tokens=20))])
        save(run, bundle.model, 8)
        assert newest_step(served) == 8
        old = await take_up(served, CONFIG)
        assert served.bundle.step == 8
        assert served.worker is not old
        batches = [batch async for batch in running.batches()]
        assert sum(map(len, batches)) == 20  # on the older weights, to the end
        old.stop()
        served.worker.stop()

    asyncio.run(scenario())


def test_a_checkpoint_that_cannot_be_read_changes_nothing(run):
    async def scenario():
        served = load_language_model("tiny", run, CONFIG)
        worker = served.worker
        for file in run.glob("checkpoints/*/model.safetensors"):
            file.write_bytes(b"")
        assert await take_up(served, CONFIG) is None
        assert served.worker is worker

    asyncio.run(scenario())


def test_names_are_told_apart(run, tmp_path):
    (served,) = load_models([run], CONFIG)
    assert served.name == run.name
    assert served.card()["kind"] == "language"
