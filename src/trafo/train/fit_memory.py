"""Refuse a training that cannot fit into memory, before anything is built."""

from __future__ import annotations

from trafo.account import Workload, account, memory
from trafo.errors import ConfigError, require
from trafo.runtime.memory import machine_memory
from trafo.runtime.sizes import format_size
from trafo.train.config import TrainConfig

_SENTENCE = 16  # tokens of an average one, in a batch of sentence pairs
_HINT = "make the model, the vocabulary, the context or the batch smaller, or accumulate more"


def require_memory(config: TrainConfig, available: int | None = None) -> None:
    """Raise if a training step needs more memory than the machine has, by our own accounting."""
    available = machine_memory() if available is None else available
    try:
        needed = _needed(config)
    except (RuntimeError, OverflowError, TypeError, MemoryError):  # beyond what torch can count
        raise ConfigError("training needs more memory than can be counted", hint=_HINT) from None
    what = f"training needs {format_size(needed)}, this machine has {format_size(available)}"
    require(needed <= available, what, _HINT)


def _needed(config: TrainConfig) -> int:
    """Peak bytes of a training step."""
    if config.translates:
        seq, rows = _SENTENCE, config.translation.batch_tokens // _SENTENCE
    else:
        seq, rows = config.seq, config.batch_size
    work = Workload(seq=seq, batch_size=max(1, rows // config.accumulate))
    return memory(account(config.model_config, work), config.optimizer.name).peak
