"""A checkpoint that grows newer is taken up while the service runs."""

import asyncio
from pathlib import Path

import pytest
import torch

pytest.importorskip("starlette")

from trafo.checkpoint.bundle import describe_model
from trafo.checkpoint.snapshot import Snapshot
from trafo.checkpoint.store import CheckpointStore
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.generate import GenerationConfig
from trafo.generate.engine import EngineConfig
from trafo.generate.request import Request
from trafo.serve.app import App
from trafo.serve.config import ServeConfig
from trafo.serve.models import Models, follow_runs, load_models, newest_step, reload_checkpoint

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
    store.save(step, Snapshot(weights, {}, {}), {}, describe_model(model, model.config))


def test_newer_weights_answer_new_requests(run, bundle):
    async def scenario():
        (served,) = load_models([run], CONFIG)
        served.worker.start()
        assert newest_step(served) == served.bundle.step == 7
        running = served.worker.submit([Request([1, 2], GenerationConfig(max_new_tokens=20))])
        save(run, bundle.model, 8)
        assert newest_step(served) == 8
        old = await reload_checkpoint(served, CONFIG)
        assert served.bundle.step == 8
        assert served.worker is not old
        # SIGTERM waits for those on the older weights, too.
        assert App(Models([served]), CONFIG).num_active == 1
        batches = [batch async for batch in running.batches()]
        assert sum(map(len, batches)) == 20  # on the older weights, to the end
        old.stop()
        served.worker.stop()

    asyncio.run(scenario())


def test_a_checkpoint_that_cannot_be_read_changes_nothing(run):
    async def scenario():
        (served,) = load_models([run], CONFIG)
        worker = served.worker
        for file in run.glob("checkpoints/*/model.safetensors"):
            file.write_bytes(b"")
        assert await reload_checkpoint(served, CONFIG) is None
        assert served.worker is worker

    asyncio.run(scenario())


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_damaged_checkpoint_is_passed_over(run, bundle):
    async def scenario():
        models = load_models([run], CONFIG)
        (served,) = models
        served.worker.start()
        following = asyncio.create_task(follow_runs(models, CONFIG, interval=0.01))
        worker = served.worker
        save(run, bundle.model, 8)
        for file in run.glob("checkpoints/*8/model.safetensors"):
            file.write_bytes(b"")
        await asyncio.sleep(0.3)
        assert (served.bundle.step, served.worker) == (7, worker)
        save(run, bundle.model, 9)
        await until(lambda: served.bundle.step == 9 and len(served.workers) == 1)
        following.cancel()
        served.worker.stop()

    asyncio.run(scenario())


def test_a_link_that_points_elsewhere_later_changes_nothing(run, bundle, tmp_path_factory):
    """`runs/latest` is another run as soon as one is started."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "latest").symlink_to(run)
    other = folder / "other"
    bundle.tokenizer.save(other / "tokenizer")
    save(other, bundle.model, 99)
    (served,) = load_models([folder / "latest"], CONFIG)
    assert served.name == "latest"
    (folder / "latest").unlink()
    (folder / "latest").symlink_to(other)
    assert newest_step(served) == 7


def test_translation_models_are_followed_too(tmp_path, bundle, translator):
    model = translator
    PairTokenizer(bundle.tokenizer, bundle.tokenizer).save(tmp_path / "tokenizer")
    save(tmp_path, model, 3)

    async def scenario():
        models = load_models([tmp_path], CONFIG)
        (served,) = models
        following = asyncio.create_task(follow_runs(models, CONFIG, interval=0.01))
        with torch.no_grad():
            model.head_weight.mul_(2)
        save(tmp_path, model, 4)
        await until(lambda: served.bundle.step == 4)
        following.cancel()
        assert torch.equal(served.bundle.model.head_weight, model.head_weight)

    asyncio.run(scenario())


def test_names_are_told_apart(run, tmp_path):
    (served,) = load_models([run], CONFIG)
    assert served.name == run.name
    assert served.card()["kind"] == "language"
