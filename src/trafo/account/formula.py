"""FLOPs of a language model's training step as a formula, for the trainer.

Per token, a weight takes 2 FLOPs; each head takes 4 d_head for each query and key; and the
backward pass twice as much as the forward pass. The weights are those of the model's own matrices,
built on the meta device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from trafo.errors import ConfigError
from trafo.models import GPT2Config, TransformerLMConfig, build_model
from trafo.nn import Linear


def training_flops(config: TransformerLMConfig | GPT2Config, seq: int, batch_size: int = 1) -> int:
    """FLOPs of one step without the optimizer; `account(...).flops` derives the same number."""
    layer = _weights_of_layer(replace(config, num_layers=1, vocab_size=1))
    weights = config.num_layers * layer + config.d_model * config.vocab_size
    # With dropout attention computes all weights, also those outside of a window.
    pairs = _pairs(seq, None if config.dropout else getattr(config, "window", None))
    attention = config.num_layers * 4 * pairs * config.num_heads * config.d_head
    return 3 * batch_size * (2 * seq * weights + attention)


@lru_cache(maxsize=64)
def _weights_of_layer(config: TransformerLMConfig | GPT2Config) -> int:
    try:
        model: Any = build_model(config, "meta")
    except (RuntimeError, OverflowError, TypeError, MemoryError):  # beyond what torch can count
        raise ConfigError(
            "the model has more weights than can be counted", hint="make it smaller"
        ) from None
    return sum(m.weight.numel() for m in model.layers.modules() if isinstance(m, Linear))


def _pairs(seq: int, window: int | None) -> int:
    """Pairs of query and key, masked ones included: a window is computed in blocks of its size."""
    if window is None or window >= seq:
        return seq * seq
    blocks = -(-seq // window)
    return blocks * window * 2 * window
