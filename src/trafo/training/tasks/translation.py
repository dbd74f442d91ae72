"""Translation: every token of a target sentence is predicted from the source and those before it.

Batches are sentence pairs of similar length (`data/pair_batches.py`). The decoder is given the
target shifted right (teacher forcing); the loss is the cross-entropy of each target token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.account import Workload, account
from trafo.data.pair_batches import PairSampler
from trafo.data.pairs import Pair
from trafo.data.prepare_pairs import prepare_pairs
from trafo.errors import require
from trafo.evaluate.evaluation import count_token_bytes, evaluate_pairs
from trafo.evaluate.scores import score_bleu
from trafo.fast import head_loss
from trafo.fast.mixed import mixed_precision
from trafo.generate.translate import translate
from trafo.models import SequenceModel
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks
from trafo.training.machine import dtype_of
from trafo.training.tasks.task import Batch, Task, validation_record

_SAMPLES = 3


class TargetLoss(Module):
    """Summed cross-entropy of every target token; padding does not count."""

    def __init__(
        self, model: SequenceModel, label_smoothing: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.dtype = dtype

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        expected: Int[Tensor, "batch target"],
    ) -> Float[Tensor, ""]:
        """The sum in nats."""
        model, smoothing = self.model, self.label_smoothing
        with mixed_precision(source.device, self.dtype):
            states = model.hidden_states(target, model.encode(source))
            # The head is the largest product: leave out the padding.
            real = expected != model.config.padding_id
            states, expected = states[real], expected[real]
            return head_loss(model, states, expected, label_smoothing=smoothing, reduction="sum")


class Translation(Task):
    """The task of an encoder-decoder."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        """Prepare the data, and check that it fits the model."""
        self.config = config
        model = config.translator
        self.data = prepare_pairs(
            config.pairs,
            config.validation,
            config.translation,
            config.data,
            vocab_sizes=(model.source_vocab_size, model.target_vocab_size),
            padding_id=model.padding_id,
            read_only=not ranks.is_first,
        )
        self._check_fit()
        self.sampler = PairSampler(self.data.training, config.translation.batch_tokens)
        training = self.data.training
        self.tokens_per_step = training.num_targets // self.sampler.num_batches
        self.num_held_out = self.data.validation.num_targets
        self.window = config.seq
        rows = max(1, round(len(training) / self.sampler.num_batches))
        work = Workload(
            seq=max(1, round(training.target.lengths.mean())),
            source_seq=max(1, round(training.source.lengths.mean())),
            batch_size=rows,
        )
        self.flops_per_step = account(model, work).flops

    def batch(self, seed: int, step: int, part: int, num_parts: int, device: torch.device) -> Batch:
        """Sentence pairs of similar length, drawn by seed and step."""
        batch, num_targets = self.sampler.batch(seed, step, part, num_parts)
        rows = range(part, part + len(batch[0]) * num_parts, num_parts)
        return Batch(tuple(ids.to(device) for ids in batch), num_targets, rows)

    def objective(self, model: SequenceModel) -> TargetLoss:
        """The summed cross-entropy of the target tokens."""
        dtype = getattr(torch, dtype_of(self.config.machine))
        return TargetLoss(model, self.config.label_smoothing, dtype)

    def blocks(self, model: SequenceModel) -> dict[str, Module]:
        """The layers by name, those that FSDP can gather."""
        return model.blocks()

    def validate(self, model: SequenceModel, num_tokens: int) -> dict[str, Any]:
        """Loss, perplexity, bits per byte, and BLEU by greedy search."""
        data = self.data
        evaluation = evaluate_pairs(
            model,
            data.validation,
            byte_lengths=count_token_bytes(data.tokenizer.target),
            max_tokens=num_tokens,
        )
        numbers = validation_record(evaluation, self.num_held_out)
        pairs = data.validation_pairs[: self.config.watch.bleu_sentences]
        if not pairs:
            return numbers
        references = [[pair.target for pair in pairs]]
        found = self._greedy(model, pairs)
        bleu = score_bleu(found, references, lowercase=data.tokenizer.lowercase)
        return numbers | {"bleu": bleu.value}

    def sample(self, model: SequenceModel) -> str:
        """A few validation sentences and their translations."""
        pairs = self.data.validation_pairs[:_SAMPLES]
        found = self._greedy(model, pairs)
        both = zip(pairs, found, strict=True)
        return "\n".join(f"{pair.source}\n-> {translation}" for pair, translation in both)

    def _greedy(self, model: SequenceModel, pairs: Sequence[Pair]) -> list[str]:
        """Their translations by greedy search."""
        sources = [pair.source for pair in pairs]
        search = replace(self.config.decoding, beam=1, n_best=1)
        found = translate(model, self.data.tokenizer, sources, search)
        return [best[0].text for best in found]

    def fingerprint(self) -> dict[str, Any]:
        """Hashes and sizes of pairs and tokenizers."""
        tokenizer = self.data.tokenizer
        return {
            "training text": self.data.content["training"],
            "validation text": self.data.content["validation"],
            "tokenizer": [tokenizer.source.hash, tokenizer.target.hash],
            "number of training pairs": len(self.data.training),
            "number of validation pairs": len(self.data.validation),
        }

    def describe(self, steps: int) -> str:
        """Sentence pairs, steps and epochs."""
        training = self.data.training
        return (
            f"{len(training):,} sentence pairs with {training.num_targets:,} target tokens to "
            f"train on, {steps:,} steps of about {self.tokens_per_step:,} target tokens "
            f"({steps / self.sampler.num_batches:.1f} epochs)"
        )

    def save_tokenizer(self, folder: Path) -> None:
        """Save both tokenizers with the run."""
        self.data.tokenizer.save(folder)

    def check_tokenizer(self, folder: Path) -> None:
        """Raise if a saved tokenizer is missing or damaged."""
        self.data.tokenizer.check(folder)

    def _check_fit(self) -> None:
        model, tokenizer = self.config.translator, self.data.tokenizer
        for side, size in (
            ("source", model.source_vocab_size),
            ("target", model.target_vocab_size),
        ):
            vocab = getattr(tokenizer, side).vocab_size
            key = f"{self.config.branch}.{side}_vocab_size"
            what = f"{key} is {size:,}, the tokenizer has {vocab:,} tokens"
            require(size >= vocab, what, f"set {key} to {vocab} or more")
        is_shared = getattr(model, "shared_embeddings", "none") == "all"
        require(
            tokenizer.is_joint or not is_shared,
            f"{self.config.branch}.shared_embeddings is all, translation.joint is false",
            "share embeddings only with a joint vocabulary",
        )
