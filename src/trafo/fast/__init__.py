"""Faster versions of layers and loss, applied to a finished model from outside.

`accelerate(model)` is all that training, evaluation and generation need. Tests
compare each part with the readable one in `nn/` and `optim/`, forward and gradients.
"""

from trafo.fast.accelerate import accelerate, is_accelerated
from trafo.fast.loss import chunked_cross_entropy, head_loss

__all__ = ["accelerate", "chunked_cross_entropy", "head_loss", "is_accelerated"]
