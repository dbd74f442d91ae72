"""A tiny model behind the whole service, in this process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

import torch
from starlette.testclient import TestClient

from trafo.checkpoint.bundle import Bundle
from trafo.generate.chat_template import ChatTemplate
from trafo.generate.engine import Engine, EngineConfig, build_engine
from trafo.models import EncoderDecoder, EncoderDecoderConfig, TransformerLM
from trafo.serve.app import App
from trafo.serve.config import ServeConfig
from trafo.serve.models import Models, ServedModel
from trafo.serve.worker import Worker
from trafo.tokenizer import Tokenizer
from trafo.tokenizer.formats.spec import TokenizerSpec


def tiny_bundle() -> Bundle:
    """Ids 0 to 255 are the bytes, 256 is <|endoftext|>."""
    torch.manual_seed(0)
    model = TransformerLM(
        vocab_size=257, context_length=64, d_model=24, num_layers=2, num_heads=4
    ).eval()
    with torch.no_grad():
        model.head_weight.mul_(6.0)
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"<|endoftext|>"}
    spec = TokenizerSpec(vocab, [], {"<|endoftext|>": 256})
    return Bundle(model, Tokenizer.from_spec(spec), Path("tiny"), 7)


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    return tiny_bundle()


@pytest.fixture
def translator() -> EncoderDecoder:
    """A translation model of the same bytes on both sides."""
    torch.manual_seed(0)
    config = EncoderDecoderConfig(
        source_vocab_size=257, target_vocab_size=257, d_model=16, num_encoder_layers=1,
        num_decoder_layers=1, num_heads=2, d_ff=16, context_length=32,
    )  # fmt: skip
    return EncoderDecoder(config).eval()


@pytest.fixture(scope="session")
def engine(bundle: Bundle) -> Engine:
    """One engine for all services: it is made once, and idle between tests."""
    return build_engine(bundle.model, EngineConfig(threads=1))


@pytest.fixture
def serve(bundle: Bundle, engine: Engine) -> Iterator[Callable[..., TestClient]]:
    """A service with any settings, and a client for it."""
    with ExitStack() as stack:

        def make(
            *others: ServedModel,
            template: ChatTemplate = ChatTemplate(),  # noqa: B008
            **settings: Any,
        ) -> TestClient:
            config = ServeConfig(**settings)
            worker = Worker(engine, config.max_queue)
            model = ServedModel("tiny", Path("tiny"), bundle, [worker], template)
            app = App(Models([model, *others]), config)
            return stack.enter_context(TestClient(app, base_url="http://127.0.0.1"))

        yield make


@pytest.fixture
def client(serve: Callable[..., TestClient]) -> TestClient:
    return serve()
