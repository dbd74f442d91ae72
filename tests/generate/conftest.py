"""Tiny models with random weights, and a tokenizer of single bytes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer


@pytest.fixture
def tiny() -> Callable[..., TransformerLM]:
    def make(**switches: Any) -> TransformerLM:
        """Large weights in the head: distributions with a shape, not nearly uniform."""
        shape: dict[str, Any] = {
            "vocab_size": 257,
            "context_length": 16,
            "d_model": 24,
            "num_layers": 2,
            "num_heads": 4,
        }
        model = TransformerLM(**{**shape, **switches}).eval()
        with torch.no_grad():
            model.head_weight.mul_(6.0)
        return model

    return make


@pytest.fixture(scope="session")
def bytes_tokenizer() -> Tokenizer:
    """Ids 0 to 255 are the bytes, 256 is <|endoftext|>."""
    return Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
