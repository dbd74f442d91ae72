"""Attention weights of any model, readable or accelerated, recorded by forward hooks.

with record_attention(model) as weights:
    model(ids)
weights["layers.0.attn"]  # one tensor for each call of that layer, (batch, heads, query, key)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import Module

from trafo.nn import AdditiveAttention, HeadsAttention, attention_weights
from trafo.nn.attention import share_heads


@contextmanager
def record_attention(model: Module) -> Iterator[dict[str, list[Tensor]]]:
    """The weights of every attention layer, by its name, in the order of the calls.

    They are computed again from the layer's inputs: the fused kernel never stores them.
    """
    found: dict[str, list[Tensor]] = {}

    def record(
        name: str, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> None:
        found[name].append(_weights(layer, *args, **kwargs))

    handles = []
    for path, module in model.named_modules():
        if isinstance(module, HeadsAttention | AdditiveAttention):
            name = path.removesuffix(".attention")
            found[name] = []
            hook = partial(record, name)
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _weights(
    layer: HeadsAttention | AdditiveAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    slots: Tensor | None = None,
) -> Tensor:
    """The attention weights that the layer's `forward` uses for the same arguments."""
    if isinstance(layer, AdditiveAttention):
        return layer.weights(q, k, v, mask)
    return attention_weights(q, share_heads(k, q.shape[1]), layer.attention_mask(k, mask, slots))
