"""FLOPs of a language model's training step as a formula, for the trainer.

Per token, a weight takes 2 FLOPs; each head takes 4 d_head for each query and key; and the
backward pass twice as much as the forward pass.
"""

from __future__ import annotations

from trafo.models import GPT2Config, TransformerLMConfig


def training_flops(config: TransformerLMConfig | GPT2Config, seq: int, batch_size: int = 1) -> int:
    """FLOPs of one step without the optimizer; `account(...).flops` derives the same number."""
    d_model, layers = config.d_model, config.num_layers
    d_q = config.num_heads * config.d_head
    d_kv = (getattr(config, "num_kv_heads", None) or config.num_heads) * config.d_head
    matrices = 3 if getattr(config, "feed_forward", None) == "swiglu" else 2
    layer = 2 * d_model * (d_q + d_kv) + matrices * d_model * config.feed_forward_size
    # With dropout attention computes all weights, also those outside of a window.
    window = None if config.dropout else getattr(config, "window", None)
    pairs = _pairs(seq, window)
    weights = layers * layer + d_model * config.vocab_size
    return 3 * batch_size * (2 * seq * weights + layers * 4 * pairs * d_q)


def _pairs(seq: int, window: int | None) -> int:
    """Pairs of query and key, masked ones included: a window is computed in blocks of its size."""
    if window is None or window >= seq:
        return seq * seq
    blocks = -(-seq // window)
    return blocks * window * 2 * window
