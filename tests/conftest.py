"""What all tests with tensors share. The others do not import torch, and neither does this."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from torch import Tensor

    from trafo.tokenizer import Tokenizer

# A machine may be busy: how long an example takes says nothing about the code. `make test` draws
# the same few examples every time, so a change is judged by what it changed; `make test-all` draws
# new ones, and more, to find what nobody thought of.
_SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, max_examples=40, suppress_health_check=_SLOW
)
settings.register_profile("random", deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("repeatable")


# Files stay whole when they are spread over processes, so those that take long come first.
_LONG = ("train", "experiment", "serve", "cli", "checkpoint", "generate", "fuzz", "optim")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: the last ones then end at about the same time."""
    here = Path(__file__).parent
    places = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path.relative_to(here).parts[0], len(_LONG)))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are faster without handing work between threads."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is measured of the machine stays out of the user's files."""
    os.environ["TRAFO_CACHE"] = str(tmp_path_factory.mktemp("trafo"))


@pytest.fixture(autouse=True)
def _no_loss_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for each tiny run; tests/training/test_metrics.py looks at such pictures."""
    report = sys.modules.get("trafo.training.report")
    if report is not None and "draws_curves" not in request.keywords:
        monkeypatch.setattr(report, "draw_curves", lambda *_: None)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a bucket: moto's server speaks the S3 protocol on this machine."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield "s3://bucket"
    server.stop()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sentences in several scripts, many times, and two special tokens."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    sentences = (
        "The cat sat on the mat, and the cat ate 12 mice.\n"
        "Die Katze saß auf der Matte.\tКошка сидела на коврике. 猫が座った 😀\n"
    )
    path.write_text(sentences * 40 + "<|endoftext|>The end<|endoftext|>")
    return path


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English and Python: the source of two modules, 150 kB."""
    path = tmp_path_factory.mktemp("text") / "sources.txt"
    path.write_text(inspect.getsource(textwrap) + inspect.getsource(inspect))
    return path


@pytest.fixture(scope="session")
def tokenizer(corpus: Path) -> Tokenizer:
    """400 tokens, trained on the corpus."""
    from trafo.tokenizer import Tokenizer, train_bpe

    return Tokenizer(*train_bpe(corpus, 400, ["<|endoftext|>"]), ["<|endoftext|>"])


@pytest.fixture(scope="session")
def assert_agree() -> Callable[..., None]:
    """One way to hold an implementation to another: same outputs, same gradients."""
    import torch

    def check(
        ours: Callable[..., Tensor],
        theirs: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        *,
        atol: float = 1e-5,
        rtol: float = 1e-4,
    ) -> None:
        """`ours(*inputs)` equals `theirs(*inputs)`, and so do the gradients of a random sum."""
        results = []
        upstream = None
        for function in (ours, theirs):
            leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
            out = function(*leaves)
            if upstream is None:
                upstream = torch.randn_like(out)
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            grads = torch.autograd.grad((out * upstream.to(out.dtype)).sum(), wanted)
            results.append((out.detach(), *grads))
        for mine, other in zip(*results, strict=True):
            torch.testing.assert_close(mine.double(), other.double(), atol=atol, rtol=rtol)

    return check


_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium: the system's, or the one that Playwright has installed.

    One for each file: while it is open, its event loop runs in this thread, and tests elsewhere
    could not start their own.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    with playwright.sync_playwright() as running:
        own = next(filter(None, map(shutil.which, _CHROMIUM)), None)
        if own is None and not Path(running.chromium.executable_path).exists():
            pytest.skip("needs Chromium: `playwright install chromium`")
        browser = running.chromium.launch(executable_path=own, args=_FLAGS.split())
        yield browser
        browser.close()
