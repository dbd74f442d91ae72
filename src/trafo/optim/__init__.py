"""Logits -> loss -> update."""

from trafo.optim.adamw import AdamW
from trafo.optim.clip import clip_gradients
from trafo.optim.loss import bits_per_byte, cross_entropy, perplexity
from trafo.optim.muon import Muon
from trafo.optim.schedule import (
    constant,
    inverse_square_root,
    warmup_cosine,
    warmup_stable_decay,
)
from trafo.optim.sgd import SGD

__all__ = [
    "SGD",
    "AdamW",
    "Muon",
    "bits_per_byte",
    "clip_gradients",
    "constant",
    "cross_entropy",
    "inverse_square_root",
    "perplexity",
    "warmup_cosine",
    "warmup_stable_decay",
]
