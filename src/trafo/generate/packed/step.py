"""One step of the engine with compiled kernels: what `ReadableStep` computes, fast.

For float32 models on the CPU. The weights are copied into panels when the step is made.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trafo.errors import ConfigError
from trafo.generate.config import WeightDtype
from trafo.generate.engine.build import supports_kernels
from trafo.generate.engine.cache import BLOCK, PagedCache, StepBatch
from trafo.generate.packed.layers import Cache, forward
from trafo.generate.packed.pack import NOTHING, pack
from trafo.generate.packed.tiles import LANES
from trafo.models import CausalLM
from trafo.runtime.kernels import kernel_threads

assert BLOCK == LANES, "a block of the cache is one vector of the kernels"


class PackedStep:
    """Reads the tokens of a batch; returns the logits that are wanted."""

    def __init__(self, model: CausalLM, weights: WeightDtype = "float32") -> None:
        if not supports_kernels(model):
            weight = model.head_weight
            got = f"a {type(model).__name__} in {weight.dtype} on {weight.device}"
            what = f"compiled kernels are for trafo's models in float32 on the CPU, not for {got}"
            raise ConfigError(what, hint="use kernel='readable'")
        self.num_threads: int | None = None
        """None: as many as torch uses"""
        self._weights = pack(model, weights)
        self._vocab_size = model.head_weight.shape[0]

    def __call__(self, batch: StepBatch, cache: PagedCache) -> Float[Tensor, "wanted vocab"]:
        """Logits after each wanted token."""
        nothing = NOTHING.reshape(0, 0, 0, 0, 0)
        arrays = Cache(cache.keys.numpy(), cache.values.numpy(), nothing, nothing)
        with kernel_threads(self.num_threads or torch.get_num_threads()):
            logits = forward(self._weights, batch, arrays)
        return torch.from_numpy(logits)[:, : self._vocab_size]
