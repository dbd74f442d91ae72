"""One operation on the meta device, where tensors have shapes but no numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

_aten: Any = torch.ops.aten


def run_on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)`, or for shapes that it was run with before, what came out then.

    Torch works out shapes in Python, which takes longer than to remember them.
    """
    func = _IN_PLACE.get((func, _node_name()), func)
    if not any(x.is_meta for x in _tensors_in(args)):
        return func(*args, **kwargs)
    if not _makes_new_tensors(func):
        return func(*_on_meta(args), **kwargs)
    key = (func, _shape(args), _shape(tuple(kwargs.items())))
    if key not in _shapes_out:
        _shapes_out[key] = _shape(func(*_on_meta(args), **kwargs))
    return _tensors(_shapes_out[key])


_shapes_out: dict[Any, Any] = {}

# The gradient of an embedding, and its sum with that of a tied head, are made in place, save under
# a mode that sees each operation, such as the recorder.
_IN_PLACE = {
    (_aten.index_add.default, "IndexSelectBackward0"): _aten.index_add_.default,
    (_aten.add.Tensor, "IndexSelectBackward0"): _aten.add_.Tensor,
}


def _node_name() -> str:
    """Of the node of the graph whose gradient is being computed."""
    current: Any = torch._C._current_autograd_node
    return type(current()).__name__


@dataclass(frozen=True)
class _Shape:
    """Everything that describes a tensor on the meta device."""

    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def _shape(x: Any) -> Any:
    """Tensors replaced by their shapes."""
    if isinstance(x, Tensor):
        return _Shape(x.shape, x.stride(), x.dtype, x.device)
    return tuple(map(_shape, x)) if isinstance(x, tuple | list) else x


def _tensors(x: Any) -> Any:
    """Shapes replaced by tensors."""
    if isinstance(x, _Shape):
        return torch.empty_strided(x.size, x.stride, dtype=x.dtype, device=x.device)
    return tuple(map(_tensors, x)) if isinstance(x, tuple) else x


@cache
def _makes_new_tensors(func: Any) -> bool:
    """Whether it neither changes what it is given nor returns a view of it."""
    schema = func._schema
    return not schema.is_mutable and not any(out.alias_info for out in schema.returns)


def _tensors_in(args: Iterable[Any]) -> Iterator[Tensor]:
    for x in args:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, tuple | list):
            yield from _tensors_in(x)


def _on_meta(args: Any) -> Any:
    """A KV cache counts its tokens on the CPU, and these meet the rest of the model."""
    if isinstance(args, Tensor):
        return args.to("meta") if args.ndim and not args.is_meta else args
    return type(args)(map(_on_meta, args)) if isinstance(args, tuple | list) else args
