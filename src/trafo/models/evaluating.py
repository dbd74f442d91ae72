"""Evaluation mode: dropout off while a model is evaluated or generates, then as before."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.nn import Module


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """`with evaluating(model): ...` runs the block in evaluation mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
