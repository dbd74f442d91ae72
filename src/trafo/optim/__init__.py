"""Logits -> loss -> update."""

from trafo.optim.loss import bits_per_byte, chunked_cross_entropy, cross_entropy, perplexity

__all__ = ["bits_per_byte", "chunked_cross_entropy", "cross_entropy", "perplexity"]
