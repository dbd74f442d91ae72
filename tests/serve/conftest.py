"""A tiny model behind the whole service, in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")

import torch
from starlette.testclient import TestClient

from trafo.checkpoint.bundle import Bundle
from trafo.checkpoint.model_tokenizer import ModelTokenizer
from trafo.generate.engine import build_engine
from trafo.models import TransformerLM
from trafo.serve.app import create_app
from trafo.serve.models import Models, Served
from trafo.serve.worker import Worker
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
    return Bundle(model, ModelTokenizer.of(spec), Path("tiny"), 7)


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    return tiny_bundle()


@pytest.fixture
def client(bundle: Bundle) -> Iterator[TestClient]:
    models = Models([Served("tiny", bundle, Worker(build_engine(bundle.model)))])
    with TestClient(create_app(models)) as client:
        yield client
