"""Language modelling: every token of a text is predicted from those before it.

Batches are windows drawn from a token file (`data/windows.py`), the loss is the cross-entropy of
each next token, validation is on the held-out end of the text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.account import training_flops
from trafo.data.prepare import Dataset, prepare
from trafo.data.windows import WindowSampler, num_windows
from trafo.errors import require
from trafo.evaluate.evaluation import count_token_bytes, evaluate_ids
from trafo.fast import head_loss
from trafo.fast.mixed import mixed_precision
from trafo.generate import GenerationConfig, generate
from trafo.models import CausalLM
from trafo.tokenizer.formats.load import check_folder
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks
from trafo.training.machine import dtype_of
from trafo.training.tasks.task import Batch, Task, validation_record


class NextTokenLoss(Module):
    """Summed cross-entropy of every next token."""

    def __init__(
        self, model: CausalLM, dtype: torch.dtype = torch.float32, label_smoothing: float = 0.0
    ) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.label_smoothing = label_smoothing

    def forward(
        self, ids: Int[Tensor, "batch seq"], targets: Int[Tensor, "batch seq"]
    ) -> Float[Tensor, ""]:
        """The sum in nats."""
        with mixed_precision(ids.device, self.dtype):
            return head_loss(
                self.model,
                self.model.hidden_states(ids),
                targets,
                label_smoothing=self.label_smoothing,
                reduction="sum",
            )


class LanguageModelling(Task):
    """The task of a `CausalLM`."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        """Prepare the data, and check that its batches can be made and split."""
        self.config = config
        self.data = prepare(
            config.text,
            config.data,
            config.language_model.vocab_size,
            config.validation,
            read_only=not ranks.is_first,
        )
        check_fit(config, self.data, ranks.world)
        self.flops_per_step = training_flops(config.language_model, config.seq, config.batch_size)
        self.tokens_per_step = config.batch_size * config.seq
        self.num_held_out = len(self.data.validation) - 1  # nothing predicts the first one
        self.window = config.seq

    def batch(self, seed: int, step: int, part: int, num_parts: int, device: torch.device) -> Batch:
        """Windows of the token file, drawn by seed and step."""
        config = self.config
        sampler = WindowSampler(self.data.training, config.batch_size, config.seq, seed)
        size = config.batch_size // num_parts
        rows = range(part * size, (part + 1) * size)
        return Batch(sampler.batch(step, part, num_parts, device), self.tokens_per_step, rows)

    def objective(self, model: CausalLM) -> NextTokenLoss:
        """The summed cross-entropy of the next tokens."""
        dtype = getattr(torch, dtype_of(self.config.machine))
        return NextTokenLoss(model, dtype, self.config.label_smoothing)

    def blocks(self, model: CausalLM) -> dict[str, Module]:
        """The layers by name."""
        return model.blocks()

    def validate(self, model: CausalLM, num_tokens: int) -> dict[str, Any]:
        """Loss, perplexity and bits per byte."""
        config, data = self.config, self.data
        found = evaluate_ids(
            model,
            data.validation,
            context_length=config.seq,
            batch_size=max(1, config.batch_size // config.accumulate),
            byte_lengths=count_token_bytes(data.tokenizer),
            max_tokens=None if num_tokens >= self.num_held_out else num_tokens,
        )
        return validation_record(found, self.num_held_out)

    def sample(self, model: CausalLM) -> str:
        """A completion of `watch.prompt`."""
        watch, tokenizer = self.config.watch, self.data.tokenizer
        # Nothing where a document can begin with its token; else a line break.
        prompt = watch.prompt or ("" if tokenizer.special_tokens else "\n")
        settings = GenerationConfig(
            max_new_tokens=watch.sample_tokens, temperature=0.8, top_p=0.95, seed=self.config.seed
        )
        return prompt + generate(model, tokenizer, [prompt], settings)[0].text

    def fingerprint(self) -> dict[str, Any]:
        """Hashes and sizes of text and tokenizer."""
        return {
            "training text": self.data.content["training"],
            "validation text": self.data.content["validation"],
            "tokenizer": self.data.tokenizer.hash,
            "number of training tokens": len(self.data.training),
            "number of validation tokens": len(self.data.validation),
        }

    def describe(self, steps: int) -> str:
        """Tokens, steps and epochs."""
        num_tokens = len(self.data.training)
        return (
            f"{num_tokens:,} tokens to train on, "
            f"{steps:,} steps of {self.config.batch_size} x {self.config.seq} tokens "
            f"({steps * self.tokens_per_step / num_tokens:.1f} epochs)"
        )

    def save_tokenizer(self, folder: Path) -> None:
        """Save the tokenizer with the run."""
        self.data.tokenizer.save(folder)

    def check_tokenizer(self, folder: Path) -> None:
        """Raise if the saved tokenizer is missing or damaged."""
        check_folder(folder, self.data.tokenizer.spec)


def check_fit(config: TrainConfig, data: Dataset, num_ranks: int) -> None:
    """Raise unless the model and its batches suit the data."""
    size, vocab = config.language_model.vocab_size, data.tokenizer.vocab_size
    key = f"{config.branch}.vocab_size"
    what = f"{key} is {size:,}, the tokenizer has {vocab:,} tokens"
    require(size >= vocab, what, f"set {key} to {vocab} or more")
    for name, ids in (("training", data.training), ("validation", data.validation)):
        require(
            len(ids) > config.seq,
            f"context_length is {config.seq}, there are only {len(ids):,} tokens for {name}",
            "use more text, a shorter context_length, or another data.held_out",
        )
    places = num_windows(len(data.training), config.seq)
    require(
        config.batch_size <= places,
        f"batch_size is {config.batch_size:,}, the data has {places:,} different sequences",
        "use more text or a smaller batch_size",
    )
    parts = num_ranks * config.accumulate
    require(
        config.batch_size % parts == 0,
        f"batch_size is {config.batch_size}, to be split over {num_ranks} processes "
        f"times accumulate {config.accumulate}",
        f"choose a multiple of {parts}",
    )
