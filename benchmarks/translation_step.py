"""A training step of a small translation model, against the same shape of torch.nn.Transformer.

3 + 3 layers, d_model 128, d_ff 512, 4 heads, pre-norm, one table of 5,000 embeddings for source,
target and head, dropout 0.3, label smoothing 0.1, in float32 and under bfloat16 autocast. A step is
forward, loss and backward on about 2,000 target tokens, pairs of similar length together; both get
the same batches. Rates count target tokens, no padding. Sentences are random, with lengths like
those of image captions.
"""

import argparse
import math

import numpy as np
import torch
from torch import Tensor, nn

from timing import Contenders, compare
from trafo.data.pair_batches import EncodedPairs, PairBatch, PairSampler
from trafo.data.pair_tokenizer import Sentences
from trafo.fast import accelerate
from trafo.fast.mixed import mixed_precision
from trafo.models import EncoderDecoder, EncoderDecoderConfig
from trafo.nn import SinusoidalPositions, dropout_by_row
from trafo.training.tasks.translation import TargetLoss

CONFIG = EncoderDecoderConfig(
    source_vocab_size=5000,
    target_vocab_size=5000,
    context_length=128,
    d_model=128,
    num_encoder_layers=3,
    num_decoder_layers=3,
    num_heads=4,
    d_ff=512,
    norm_placement="pre",
    shared_embeddings="all",
    dropout=0.3,
)
SMOOTHING, BATCH_TOKENS, BATCHES = 0.1, 2000, 4


class TorchTransformer(nn.Module):
    """The same network from torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(CONFIG.target_vocab_size, CONFIG.d_model)
        self.positions = SinusoidalPositions(CONFIG.d_model, CONFIG.context_length)
        self.dropout = nn.Dropout(CONFIG.dropout)
        self.transformer = nn.Transformer(
            CONFIG.d_model,
            CONFIG.num_heads,
            CONFIG.num_encoder_layers,
            CONFIG.num_decoder_layers,
            CONFIG.d_ff,
            CONFIG.dropout,
            batch_first=True,
            norm_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
        words = self.embeddings(ids) * math.sqrt(CONFIG.d_model)
        return self.dropout(self.positions(words))

    def forward(self, source: Tensor, target: Tensor, expected: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=source == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        real = expected != 0  # as we do: the head is spared the padding
        return nn.functional.cross_entropy(
            states[real] @ self.embeddings.weight.T,
            expected[real],
            label_smoothing=SMOOTHING,
            reduction="sum",
        )


def batches() -> tuple[list[PairBatch], int]:
    """Some batches, and their target tokens."""
    chance = np.random.default_rng(0)
    targets = np.clip(chance.normal(16, 5, 20_000).round(), 5, 60).astype(int)
    sources = np.clip(targets + chance.normal(-1, 2, len(targets)).round(), 4, 60).astype(int)
    sides = [
        Sentences.of([chance.integers(1, 5000, length) for length in lengths])
        for lengths in (sources, targets)
    ]
    sampler = PairSampler(EncodedPairs(*sides, padding_id=0), BATCH_TOKENS)
    found = [sampler.batch(0, step) for step in range(BATCHES)]
    return [batch for batch, _ in found], sum(number for _, number in found)


def measure(rounds: int, threads: int = 1) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    steps, num_targets = batches()
    models: dict[str, nn.Module] = {
        "trafo": TargetLoss(accelerate(EncoderDecoder(CONFIG)), SMOOTHING),
        "torch.nn.Transformer": TorchTransformer(),
        "trafo, readable": TargetLoss(EncoderDecoder(CONFIG), SMOOTHING),
    }

    def run(model: nn.Module, dtype: torch.dtype) -> None:
        for batch in steps:
            model.zero_grad(set_to_none=True)
            # As in a training: dropout of each sentence from its own generator (torch: from one).
            seeds = range(len(batch[0]))
            rows = dropout_by_row([torch.Generator().manual_seed(seed) for seed in seeds])
            with rows, mixed_precision(torch.device("cpu"), dtype):
                loss = model(*batch)
            loss.backward()

    for dtype in (torch.float32, torch.bfloat16):
        models["trafo"].dtype = dtype  # it has an autocast of its own
        contenders: Contenders = {
            name: lambda m=model, d=dtype: run(m, d)
            for name, model in models.items()
            if dtype == torch.float32 or "readable" not in name
        }
        name = str(dtype).removeprefix("torch.")
        what = f"translation, forward + loss + backward, {name}, {threads} thread(s)"
        compare(what, contenders, amount=num_targets, unit="target tokens", rounds=rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    measure(options.rounds, options.threads)
