"""How good a model is, in numbers: loss, perplexity, bits per byte."""

from trafo.evaluate.evaluation import Evaluation, evaluate_ids
from trafo.evaluate.text_bytes import byte_lengths

__all__ = ["Evaluation", "byte_lengths", "evaluate_ids"]
