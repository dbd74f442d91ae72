"""A model's config and a workload -> everything there is to say about its cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trafo.account.causal_lm import gpt2_blocks, kv_cache_bytes, transformer_lm_blocks
from trafo.account.encoder_decoder import encoder_decoder_blocks, source_cache_bytes
from trafo.account.parts import (
    Block,
    Component,
    Weight,
    total_backward_flops,
    total_forward_flops,
    total_kept_bytes,
)
from trafo.account.recurrent import recurrent_blocks, state_bytes
from trafo.account.workload import Workload
from trafo.models import (
    EncoderDecoderConfig,
    GPT2Config,
    ModelConfig,
    RecurrentConfig,
    TransformerLMConfig,
)


@dataclass(frozen=True)
class Account:
    """A model at work, as blocks of components in the order in which they run."""

    config: ModelConfig
    work: Workload
    blocks: tuple[Block, ...]
    cache_bytes: int
    """what generation keeps between tokens; 0 in training"""

    @property
    def parameters(self) -> int:
        return sum(block.parameters for block in self.blocks)

    @property
    def forward_flops(self) -> int:
        return total_forward_flops(self.blocks)

    @property
    def backward_flops(self) -> int:
        return total_backward_flops(self.blocks) if self.work.is_training else 0

    @property
    def flops(self) -> int:
        """Of one forward pass, and in training of the backward pass too."""
        return self.forward_flops + self.backward_flops

    @property
    def kept_bytes(self) -> int:
        """Activations: all that waits for the backward pass when the forward pass is done."""
        return total_kept_bytes(self.blocks)

    @property
    def tokens(self) -> int:
        """Tokens that come out, or in training and prefill go in: those of the target."""
        per_row = 1 if self.work.phase == "decode" else self.work.seq
        return self.work.batch_size * per_row

    def weights(self) -> Iterator[Weight]:
        for block in self.blocks:
            for _ in range(block.times):
                for component in block.components:
                    yield from component.weights

    def in_order(self) -> Iterator[Component]:
        """Every component as often as it runs."""
        for block in self.blocks:
            for _ in range(block.times):
                yield from block.components


def account(config: ModelConfig, work: Workload) -> Account:
    """What this model costs at this workload."""
    blocks: tuple[Block, ...]
    match config:
        case TransformerLMConfig():
            blocks, cache = transformer_lm_blocks(config, work), kv_cache_bytes(config, work)
        case GPT2Config():
            blocks, cache = gpt2_blocks(config, work), kv_cache_bytes(config, work)
        case EncoderDecoderConfig():
            blocks, cache = encoder_decoder_blocks(config, work), source_cache_bytes(config, work)
        case RecurrentConfig():
            blocks, cache = recurrent_blocks(config, work), state_bytes(config, work)
    return Account(config, work, blocks, 0 if work.is_training else cache)
