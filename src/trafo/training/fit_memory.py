"""Refuse a training run that cannot fit into memory, before anything is built."""

from __future__ import annotations

from trafo.account import Workload, account, predict_memory, training_flops
from trafo.errors import ConfigError, require
from trafo.runtime.machine import machine_memory
from trafo.runtime.sizes import format_size
from trafo.training.config import TrainConfig

SENTENCE = 16  # tokens of an average one, in a batch of sentence pairs
_HINT = "make the model, the vocabulary, the context or the batch smaller, or accumulate more"


def require_memory(config: TrainConfig, available: int | None = None) -> None:
    """Raise if a training step needs more memory than the machine has, by our own accounting."""
    available = machine_memory() if available is None else available
    if not config.translates and most_bytes(config) < available:
        return
    try:
        needed = needed_bytes(config)
    except (RuntimeError, OverflowError, TypeError, MemoryError):  # beyond what torch can count
        raise ConfigError("training needs more memory than can be counted", hint=_HINT) from None
    what = f"training needs {format_size(needed)}, this machine has {format_size(available)}"
    require(needed <= available, what, _HINT)


def most_bytes(config: TrainConfig) -> int:
    """More bytes than a step of a language model can need, from its FLOPs alone.

    Each number it keeps is a weight or comes from a product with weights. Accounting itself
    imports a compiler and takes seconds; a small model does not need it.
    """
    rows = max(1, config.batch_size // config.accumulate)
    return 10 * training_flops(config.language_model, config.seq, rows)


def needed_bytes(config: TrainConfig) -> int:
    """Peak bytes of a training step, by our own accounting."""
    result = account(config.model_config, micro_batch(config))
    return predict_memory(result, config.optimizer.name, accumulating=config.accumulate > 1).peak


def micro_batch(config: TrainConfig) -> Workload:
    """What passes through the model at a time; pairs of sentences are taken for average ones."""
    seq, rows = config.seq, config.batch_size
    if config.translates:
        seq = min(SENTENCE, config.seq)
        rows = config.translation.batch_tokens // seq
    return Workload(seq=seq, batch_size=max(1, rows // config.accumulate))
