"""KV cache: keys and values of the tokens so far, so that only new tokens are computed.

Made by a model, passed to it with every call, owned by the caller: the model itself has no
state. Slot j of a row holds the token at position j. Rows may hold different numbers of tokens:
a batch of prompts is padded on the right, `counts` says how many ids of each row are real, and
what padding writes is hidden (its slot lies ahead of every real query, where causal attention does
not look) until a real token overwrites it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.errors import InputError
from trafo.nn.precision import Device, Dtype


class KVCache:
    """Room for `capacity` tokens of each row of a batch, in every layer. Holds no gradients."""

    def __init__(
        self,
        num_layers: int,
        batch: int,
        num_kv_heads: int,
        capacity: int,
        d_head: int,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        # One slot more than asked for: padding beyond the end has to be written somewhere.
        shape = (num_layers, batch, num_kv_heads, capacity + 1, d_head)
        self.capacity = capacity
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.lengths: Int[Tensor, " batch"] = torch.zeros(batch, dtype=torch.long, device=device)

    def begin(self, seq: int, counts: Int[Tensor, " batch"] | None = None) -> "CacheStep":
        """Plan the next `seq` ids of each row, of which the first `counts` (None: all) are real."""
        starts: list[int] = self.lengths.tolist()
        ends = self.lengths + (seq if counts is None else counts)
        longest = int(ends.max())
        if longest > self.capacity:
            raise InputError(
                f"the cache holds {self.capacity} tokens per row, this step needs {longest}",
                hint="make a larger cache, or drop the oldest tokens and start again",
            )
        together = len(set(starts)) == 1 and starts[0] + seq <= self.capacity
        slots = self.lengths[:, None] + torch.arange(seq, device=self.lengths.device)
        return CacheStep(
            cache=self,
            slots=slots.clamp(max=self.capacity),
            used=min(max(starts) + seq, self.capacity),
            start=starts[0] if together else None,
            lengths_after=ends,
        )

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Make row i a copy of `rows[i]`, where rows may repeat (beams) or be left out (done)."""
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)
        self.lengths = self.lengths[rows]

    def replace(self, rows: Int[Tensor, " rows"], other: "KVCache") -> None:
        """Row `rows[i]` becomes a copy of row i of another cache."""
        used = min(self.capacity, other.capacity)
        self.keys[:, rows, :, :used] = other.keys[:, :, :, :used]
        self.values[:, rows, :, :used] = other.values[:, :, :, :used]
        self.lengths = self.lengths.index_copy(0, rows, other.lengths)


@dataclass(frozen=True)
class CacheStep:
    """One call of the model: the slots of its tokens."""

    cache: KVCache
    slots: Int[Tensor, "batch seq"]
    used: int
    start: int | None  # the slot at which all rows begin, if it is the same for all
    lengths_after: Int[Tensor, " batch"]

    @property
    def positions(self) -> Int[Tensor, "batch seq"]:
        """Position of each new token, where slot j holds position j."""
        return self.slots.clamp(max=self.cache.capacity - 1)

    def layer(self, index: int) -> "LayerCache":
        """The part of one layer."""
        return LayerCache(self, index)

    def finish(self) -> None:
        """Count the tokens as seen, once every layer has stored them."""
        self.cache.lengths = self.lengths_after


@dataclass(frozen=True)
class LayerCache:
    """One layer's part of a step."""

    step: CacheStep
    index: int

    def extend(
        self,
        keys: Float[Tensor, "batch kv_heads seq d_head"],
        values: Float[Tensor, "batch kv_heads seq d_head"],
        key_mask: Bool[Tensor, "#batch 1 1 all_keys"] | None = None,
    ) -> tuple[
        Float[Tensor, "batch kv_heads used d_head"],
        Float[Tensor, "batch kv_heads used d_head"],
        Int[Tensor, "batch seq"],
    ]:
        """Write the new tokens, and return all keys and values and the slots of the new ones.

        `key_mask` is over all of them.
        """
        cache, used = self.step.cache, self.step.used
        if key_mask is not None and key_mask.shape[-1] != used:
            raise InputError(
                f"key_mask is for {key_mask.shape[-1]} keys, with the cache there are {used}",
                hint="it covers the tokens in the cache and the new ones",
            )
        pairs = (cache.keys[self.index], keys.detach()), (cache.values[self.index], values.detach())
        for stored, new in pairs:
            self._write(stored, new)
        return pairs[0][0][:, :, :used], pairs[1][0][:, :, :used], self.step.slots

    def _write(self, stored: Tensor, new: Tensor) -> None:
        start = self.step.start
        if start is not None:  # all rows alike: one slice
            stored[:, :, start : start + new.shape[2]] = new
            return
        rows = torch.arange(new.shape[0], device=new.device)[:, None]
        stored[rows, :, self.step.slots] = new.transpose(1, 2)
