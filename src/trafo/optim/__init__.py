"""Logits -> loss -> update."""

from trafo.errors import check_public_types
from trafo.optim.adamw import AdamW
from trafo.optim.clip import clip_gradients
from trafo.optim.loss import cross_entropy
from trafo.optim.muon import Muon
from trafo.optim.optimizer import SGD
from trafo.optim.schedule import (
    constant,
    inverse_square_root,
    warmup_cosine,
    warmup_stable_decay,
)

__all__ = [
    "SGD",
    "AdamW",
    "Muon",
    "clip_gradients",
    "constant",
    "cross_entropy",
    "inverse_square_root",
    "warmup_cosine",
    "warmup_stable_decay",
]

check_public_types(globals(), __all__)
