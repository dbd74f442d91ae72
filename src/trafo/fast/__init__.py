"""Faster versions of layers and loss, applied to a finished model from outside.

`accelerate(model)` is all that training, evaluation and generation need. Each part is held to its
readable twin in `nn/` and `optim/` by tests, forward and gradients.
"""

from trafo.fast.accelerate import accelerate, is_accelerated
from trafo.fast.loss import chunked_cross_entropy, head_loss

__all__ = ["accelerate", "chunked_cross_entropy", "head_loss", "is_accelerated"]
