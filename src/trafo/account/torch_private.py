"""What a dry run needs of torch and what torch has under private names only.

To see every operation, to know which node of autograd's graph it belongs to, and to know which
kernel of attention a CPU uses. `tests/account/test_torch_private.py` checks each of the three.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _get_sequence_nr
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

_aten: Any = torch.ops.aten
_running_node: Any = torch._C._current_autograd_node

FLASH_ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu

# The gradient of an embedding, and its sum with that of a tied head, are computed in place, except
# under a mode that sees each operation.
_IN_PLACE = {
    (_aten.index_add.default, "IndexSelectBackward0"): _aten.index_add_.default,
    (_aten.add.Tensor, "IndexSelectBackward0"): _aten.add_.Tensor,
}
_results: dict[Any, Any] = {}


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every operation on the meta device, and tells `record` of it."""

    def record(self, operation: Any, args: tuple[Any, ...], out: list[Any]) -> None:
        """Note an operation, its arguments and what came out."""
        raise NotImplementedError

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = _run_on_meta(func, args, kwargs or {})
        self.record(func.overloadpacket, args, tree_leaves(out))
        return out

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in a dry run, and skipping the compiler would import it: 2 s."""
        return False


def current_node() -> tuple[int, bool]:
    """Return the number of the node that was made last, or True and the one running backward."""
    node = _running_node()
    return (_get_sequence_nr() - 1, False) if node is None else (node._sequence_nr(), True)


def uses_flash_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **settings: Any
) -> bool:
    """Ask torch what it chooses on a CPU, with stand-ins of the same shapes."""
    with _disable_current_modes():
        alike = [torch.empty(x.shape[-1]).expand(x.shape) for x in (q, k, v)]
        if attn_mask is not None:
            settings["attn_mask"] = torch.ones(1).bool().expand(attn_mask.shape)
        choose: Any = torch._fused_sdp_choice
        return bool(choose(*alike, **settings))


def _run_on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return `func(*args, **kwargs)`, or for shapes that were run before, what came out then.

    Torch works out shapes in Python, which takes longer than to remember them.
    """
    func = _IN_PLACE.get((func, type(_running_node()).__name__), func)
    leaves = tree_leaves((args, kwargs))
    devices = {x.is_meta for x in leaves if isinstance(x, Tensor)}
    if True not in devices:
        return func(*args, **kwargs)
    if False in devices:  # a KV cache counts its tokens on the CPU, and these meet the rest
        args = tree_map_only(Tensor, lambda x: x.to("meta") if x.ndim else x, args)
    if not _makes_new_tensors(func):
        return func(*args, **kwargs)
    key = (func, *kwargs, *map(_shape, leaves))
    if key not in _results:
        _results[key] = tree_map_only(Tensor, _empty_like, func(*args, **kwargs))
    return tree_map_only(Tensor, _empty_like, _results[key])


@cache
def _makes_new_tensors(func: Any) -> bool:
    """Whether it neither changes what it is given nor returns a view of it."""
    schema = func._schema
    return not schema.is_mutable and not any(out.alias_info for out in schema.returns)


def _shape(x: Any) -> Any:
    """Return everything that describes a tensor on the meta device."""
    return (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
