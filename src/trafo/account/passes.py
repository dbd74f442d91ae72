"""Forward passes of a model over random ids, for dry runs on the meta device and real ones.

A language model reads ids; an encoder-decoder reads a source, then writes a target from one token
on. The model's class is not asked for: whether there is a source shows in the config.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trafo.account.workload import Workload
from trafo.fast import head_loss
from trafo.models import ModelConfig


def has_source(config: ModelConfig) -> bool:
    """Whether it is the config of an encoder-decoder."""
    return hasattr(config, "source_vocab_size")


def forward(model: Any, work: Workload) -> Tensor:
    """Logits of every position, as in training."""
    states, _ = _training_states(model, work)
    logits: Tensor = model.logits(states)
    return logits


def loss(model: Any, work: Workload) -> Tensor:
    """The loss of a training step."""
    states, targets = _training_states(model, work)
    return head_loss(model, states, targets)


class Generation:
    """A KV cache and what comes before `run`: nothing in prefill, all other tokens in decode."""

    def __init__(self, model: Any, work: Workload) -> None:
        self.model, self.work = model, work
        self.cache = model.make_cache(work.batch_size, work.seq)
        self._memory: tuple[Any, ...] = ()
        self._pretend(0)
        if work.phase == "decode":
            if has_source(model.config):
                self.run()
            self._pretend(work.seq - 1)

    def run(self) -> None:
        """Read the prompt (or source), or one more token; up to the logits of the last token."""
        model, work = self.model, self.work
        tokens = 1 if work.phase == "decode" or has_source(model.config) else work.seq
        if has_source(model.config) and not self._memory:
            self._memory = (self._encode(),)
        ids = _ids(model, work.batch_size, tokens)
        states = model.hidden_states(ids, *self._memory, cache=self.cache)
        model.logits(states[:, -1:])

    def _encode(self) -> Any:
        return self.model.encode(
            _ids(self.model, self.work.batch_size, self.work.source, "source_")
        )

    def _pretend(self, num_tokens: int) -> None:
        """Set the length of the cache; counted on the CPU, see `Recorder`."""
        kv_cache = getattr(self.cache, "target", self.cache)
        if hasattr(kv_cache, "lengths"):
            kv_cache.lengths = torch.full((self.work.batch_size,), num_tokens)


def _training_states(model: Any, work: Workload) -> tuple[Tensor, Tensor]:
    targets = _ids(model, work.batch_size, work.seq)
    if not has_source(model.config):
        return model.hidden_states(targets), targets
    source = _ids(model, work.batch_size, work.source, "source_")
    return model.hidden_states(targets, model.encode(source)), targets


def _ids(model: Any, batch_size: int, seq: int, side: str = "") -> Tensor:
    """Random ids without padding."""
    names = (f"{side}vocab_size", "target_vocab_size")
    vocab = next(getattr(model.config, name) for name in names if hasattr(model.config, name))
    return torch.randint(1, vocab, (batch_size, seq), device=model.head_weight.device)
