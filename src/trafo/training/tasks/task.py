"""The interface between the trainer and a kind of data.

The trainer takes steps, validates, samples, saves and resumes, and knows nothing of windows or
sentences. A task says what a batch is, which loss it has and how a model is measured:
`language.py` is language modelling, `translation.py` translation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from trafo.evaluate.evaluation import Evaluation


@dataclass(frozen=True)
class Batch:
    """The batch of a step, or one of the parts that it is split into."""

    inputs: tuple[Tensor, ...]
    """inputs of the objective"""
    num_targets: int
    """target tokens of the whole batch, over all its parts; the loss is the mean over them"""
    rows: range
    """which rows of the whole batch these are"""


class Task(Protocol):
    """A training task: data, loss, validation and samples."""

    tokens_per_step: int
    """target tokens of a step, approximately"""
    num_held_out: int
    """target tokens that can be validated on"""
    window: int
    """tokens of a sequence, at most: losses of tokens in one sequence are not independent"""
    flops_per_step: float
    """FLOPs of forward and backward pass, for the utilisation of the machine"""

    def batch(self, seed: int, step: int, part: int, num_parts: int, device: torch.device) -> Batch:
        """Part `part` of the batch of a step: a function of these numbers alone.

        All parts together are the same batch for every `num_parts`.
        """

    def objective(self, model: Any) -> Module:
        """The module whose `forward(*batch.inputs)` is the summed loss in nats.

        DDP, FSDP and `torch.compile` all wrap a module's `forward`, so the loss is inside it.
        """

    def blocks(self, model: Any) -> Mapping[str, Module]:
        """The layers by name: FSDP gathers them one at a time, norms are recorded of each."""

    def validate(self, model: Any, num_tokens: int) -> dict[str, Any]:
        """Metrics on about `num_tokens` held-out tokens, the same each time; `loss` is one."""

    def sample(self, model: Any) -> str:
        """A sample from the model, with the same random numbers each time."""

    def fingerprint(self) -> dict[str, Any]:
        """What identifies this data: a run resumes only on the data it began with."""

    def describe(self, steps: int) -> str:
        """The data, steps and epochs in one line."""

    def save_tokenizer(self, folder: Path) -> None:
        """Save the tokenizer with the run."""

    def check_tokenizer(self, folder: Path) -> None:
        """Raise if the saved tokenizer is missing or damaged."""


def validation_record(found: Evaluation, num_held_out: int) -> dict[str, Any]:
    """What metrics.jsonl says of a validation: also on how many tokens, and how certain it is."""
    return {
        "loss": found.loss,
        "standard_error": found.standard_error,
        "perplexity": found.perplexity,
        "bits_per_byte": found.bits_per_byte,
        "tokens": found.num_tokens,
        "held_out_tokens": num_held_out,
    }
