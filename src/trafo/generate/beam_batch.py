"""What goes between beam search and a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from trafo.data.pair_batches import padded
from trafo.models.translator import Translator


class SourceBatch(NamedTuple):
    """Sources that are translated together, and how."""

    ids: Int[Tensor, "sentences source"]
    lengths: Int64[np.ndarray, " sentences"]
    beam: int
    most_tokens: int
    """of a translation"""
    end: int


class Continuations(NamedTuple):
    """The best continuations of each sentence's hypotheses, best first."""

    logprobs: Float64[np.ndarray, "sentences best"]
    """-inf where nothing is left"""
    tokens: Int64[np.ndarray, "sentences best"]
    parents: Int64[np.ndarray, "sentences best"]
    """which hypothesis of the sentence is continued"""


def empty_continuations(sentences: int, number: int) -> Continuations:
    """Arrays for a kernel to fill."""
    tokens, parents = np.empty((2, sentences, number), np.int64)
    return Continuations(np.empty((sentences, number)), tokens, parents)


class BeamDecoder(Protocol):
    """A decoder with one row per hypothesis; it begins with one row per sentence."""

    def best(
        self,
        last: Int64[np.ndarray, "sentences alive"],
        totals: Float64[np.ndarray, "sentences alive"],
        number: int,
    ) -> Continuations:
        """Best continuations of hypotheses with these last tokens and log-probabilities.

        The hypotheses of a sentence come best first. `number` is twice the beam, and complete is
        what beam search needs of it: the first `beam` ones, and the first `beam` that do not end.
        """

    def follow(self, rows: Int64[np.ndarray, " new_rows"]) -> None:
        """Row i goes on with the hypothesis of row `rows[i]`."""


def make_batch(
    model: Translator, sources: Sequence[Sequence[int]], beam: int, most_tokens: int, end: int
) -> SourceBatch:
    """Pad the sources, on the model's device."""
    ids = [np.asarray(source, np.int32) for source in sources]
    batch = padded(ids, model.config.padding_id).to(model.head_weight.device)
    return SourceBatch(batch, np.array([len(each) for each in ids]), beam, most_tokens, end)
