"""One server and one browser for all tests of the page; small random models behind it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright.sync_api")

import torch
import uvicorn
from playwright.sync_api import expect

from trafo.checkpoint.bundle import Bundle
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.generate.engine import Engine, EngineConfig, build_engine
from trafo.models import EncoderDecoder, EncoderDecoderConfig, TransformerLM
from trafo.serve.app import App
from trafo.serve.config import ServeConfig
from trafo.serve.models import Models, ServedModel
from trafo.serve.worker import Worker
from trafo.tokenizer import Tokenizer
from trafo.tokenizer.formats.spec import TokenizerSpec

expect.set_options(timeout=60_000)  # milliseconds: the machine may be busy


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> Path:
    """Two runs: one that still trains, one that is done."""
    runs = tmp_path_factory.mktemp("runs")
    for name in ("tiny", "done"):
        (runs / name).mkdir()
        (runs / name / "config.yaml").write_text("steps: 10\n")
        add_records(runs / name, range(1, 6))
    (runs / "tiny" / "samples.txt").write_text("--- step 5 ---\nOnce upon a cat\n\n")
    final = {"step": 5, "kind": "final", "loss": 2.5, "bits_per_byte": 1.5}
    with (runs / "done" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(final) + "\n")
    return runs


def add_records(run: Path, steps: range) -> None:
    """Metrics as a training writes them."""
    with (run / "metrics.jsonl").open("a") as file:
        for step in steps:
            record = {"step": step, "kind": "train", "loss": 9.0 - step / 2, "seconds": step * 3.0}
            record["total_tokens"] = 1000 * step
            file.write(json.dumps(record) + "\n")


@pytest.fixture(scope="session")
def language_bundle(tokenizer: Tokenizer, run_folder: Path) -> Bundle:
    """Random weights, a trained tokenizer."""
    torch.manual_seed(0)
    model = TransformerLM(
        vocab_size=tokenizer.vocab_size, context_length=64, d_model=24, num_layers=2, num_heads=4
    ).eval()
    with torch.no_grad():
        model.head_weight.mul_(6.0)
    spec = TokenizerSpec(tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens)
    source = run_folder / "tiny" / "checkpoints" / "step-00000007"
    return Bundle(model, Tokenizer.from_spec(spec), source, 7)


@pytest.fixture(scope="session")
def translator_bundle(tokenizer: Tokenizer) -> Bundle:
    """A random encoder-decoder."""
    torch.manual_seed(0)
    size = tokenizer.vocab_size
    config = EncoderDecoderConfig(
        source_vocab_size=size,
        target_vocab_size=size,
        context_length=48,
        d_model=16,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        d_ff=24,
    )
    pair = PairTokenizer(tokenizer, tokenizer)
    return Bundle(EncoderDecoder(config).eval(), pair, Path("translator"), 3)


@pytest.fixture(scope="session")
def models(
    language_bundle: Bundle, translator_bundle: Bundle, bundle: Bundle, engine: Engine
) -> Callable[[], Models]:
    """The models, with a new worker for each server; "bytes" has another vocabulary."""
    tiny = build_engine(language_bundle.model, EngineConfig(threads=1))
    path = Path("models")

    def make() -> Models:
        language = [
            ServedModel("tiny", path, language_bundle, [Worker(tiny, 8)]),
            ServedModel("bytes", path, bundle, [Worker(engine, 8)]),
        ]
        return Models([*language, ServedModel("translator", path, translator_bundle)])

    return make


@pytest.fixture(scope="session")
def address(models: Callable[[], Models]) -> Iterator[str]:
    """The address of a running server."""
    with Running(App(models())) as url:
        yield url


@pytest.fixture
def locked_address(models: Callable[[], Models]) -> Iterator[str]:
    """The address of a server that asks for a key."""
    with Running(App(models(), ServeConfig(api_key="open sesame"))) as url:
        yield url


class Running:
    """A server on a thread of its own, on a free port."""

    def __init__(self, app: object) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="error", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


@dataclass
class Visit:
    """A page that is open, what it asked for and what went wrong in it."""

    page: object
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def forget_failed_requests(self) -> None:
        """The browser logs every request that fails; what the page makes of it still counts."""
        self.problems = [each for each in self.problems if "Failed to load resource" not in each]


@pytest.fixture
def visit(browser, address) -> Iterator[Callable[..., Visit]]:
    """`visit("#write")` opens the page; whatever it logs as an error fails the test."""
    contexts = []
    visits = []

    def open_page(hash_: str = "", at: str = address, **options: object) -> Visit:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # the machine may be busy
        made = Visit(page)
        visits.append(made)
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("pageerror", lambda error: made.problems.append(str(error)))
        page.on(
            "console",
            lambda message: message.type == "error" and made.problems.append(message.text),
        )
        page.goto(f"{at}/{hash_}")
        return made

    yield open_page
    for context in contexts:
        context.close()
    for made in visits:
        assert made.problems == []
        # Nothing leaves the machine.
        assert all(url.startswith(("http://127.0.0.1:", "data:")) for url in made.requests)
