"""One operation on the meta device, where tensors have shapes but no numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

_aten: Any = torch.ops.aten

# The gradient of an embedding, and its sum with that of a tied head, are computed in place, except
# under a mode that sees each operation, such as the recorder.
_IN_PLACE = {
    (_aten.index_add.default, "IndexSelectBackward0"): _aten.index_add_.default,
    (_aten.add.Tensor, "IndexSelectBackward0"): _aten.add_.Tensor,
}
_results: dict[Any, Any] = {}


def run_on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)`, or for shapes that it was run with before, what came out then.

    Torch works out shapes in Python, which takes longer than to remember them.
    """
    current: Any = torch._C._current_autograd_node
    func = _IN_PLACE.get((func, type(current()).__name__), func)
    leaves = tree_leaves((args, kwargs))
    devices = {x.is_meta for x in leaves if isinstance(x, Tensor)}
    if True not in devices:
        return func(*args, **kwargs)
    if False in devices:
        args = tree_map_only(Tensor, _on_meta, args)
    if not _makes_new_tensors(func):
        return func(*args, **kwargs)
    key = (func, *kwargs, *map(_shape, leaves))
    if key not in _results:
        _results[key] = _alike(func(*args, **kwargs))
    return _alike(_results[key])


@cache
def _makes_new_tensors(func: Any) -> bool:
    """Whether it neither changes what it is given nor returns a view of it."""
    schema = func._schema
    return not schema.is_mutable and not any(out.alias_info for out in schema.returns)


def _on_meta(tensor: Tensor) -> Tensor:
    """A KV cache counts its tokens on the CPU, and these meet the rest of the model."""
    return tensor.to("meta") if tensor.ndim and not tensor.is_meta else tensor


def _shape(x: Any) -> Any:
    """Everything that describes a tensor on the meta device."""
    return (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x


def _alike(out: Any) -> Any:
    """Tensors of the same shapes, with memory of their own."""
    if not isinstance(out, Tensor):
        return tree_map_only(Tensor, _alike, out)
    size, stride, dtype, device = _shape(out)
    return torch.empty_strided(size, stride, dtype=dtype, device=device)
