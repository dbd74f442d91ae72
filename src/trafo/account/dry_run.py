"""Run a model on the meta device, where tensors have shapes but no numbers, and note what it does.

Nothing is computed and nothing is allocated, so a model of any size can run. Every operation passes
a `Recorder`, which notes the matrix products, and the bytes of all tensors that are alive, with the
part of the model that is running.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _get_sequence_nr
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from trafo.account.meta_run import run_on_meta
from trafo.account.parts import MatrixProduct, Place, place_of

_aten: Any = torch.ops.aten
_HEAD = "lm_head"
_ATTENTION = ("scores", "weighted mean")


@dataclass(frozen=True)
class Moment:
    """The time in which a part runs forward or backward, and the most bytes alive in it."""

    place: Place
    is_backward: bool
    live_bytes: int


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what `model`, and the loss after it, do inside a `with` block."""

    def __init__(self, model: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: Counter[tuple[Place, MatrixProduct]] = Counter()
        self.places: dict[str, Place] = {}
        """by the path of each module that did something, in order"""
        self._most: dict[tuple[Place, bool], int] = {}
        self._live_bytes = 0
        self._running: list[str] = []
        self._paths: dict[int, str] = {}  # of what made each node of the graph
        self._last_path = _HEAD
        self._products_at: Counter[str] = Counter()
        own = (*model.parameters(), *model.buffers())
        self._known = weakref.WeakSet(tensor.untyped_storage() for tensor in own)
        _announce_methods(model, self._running)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in a dry run, and skipping the compiler would import it: 2 s."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = run_on_meta(func, args, kwargs or {})
        node: Any = torch._C._current_autograd_node()
        self._last_path = path = self._forward_path() if node is None else self._path_of(node)
        place = self.places.setdefault(path, place_of(path))
        if node is None:
            name = self._name_of_next_product(path)
            for product, times in _products_of(func.overloadpacket, args, name):
                self.products[place, product] += times
                self._products_at[path] += 1
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        self._note(place, node is not None)
        return out

    @property
    def running(self) -> str:
        """The path of the module that runs; outside of all modules it is the loss, on the head."""
        return self._running[-1] if self._running else _HEAD

    def _forward_path(self) -> str:
        self._paths[_get_sequence_nr() - 1] = self.running
        return self.running

    def _path_of(self, node: Any) -> str:
        """What the node was made by; adding up a gradient belongs to what computed it."""
        return self._paths.get(node._sequence_nr(), self._last_path)

    def _name_of_next_product(self, path: str) -> str:
        """The layer's own name; attention has two products, the scores come first."""
        name = path.rpartition(".")[2]
        return _ATTENTION[self._products_at[path] % 2] if name == "attention" else name

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage not in self._known:
            self._known.add(storage)
            self._live_bytes += storage.nbytes()
            weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, num_bytes: int) -> None:
        self._live_bytes -= num_bytes

    def _note(self, place: Place, is_backward: bool) -> None:
        """Moments stand in the order in which they reach their most."""
        when = (place, is_backward)
        if self._live_bytes > self._most.get(when, -1):
            self._most.pop(when, None)
            self._most[when] = self._live_bytes

    @property
    def moments(self) -> list[Moment]:
        """One for each part and direction."""
        return [Moment(*when, most) for when, most in self._most.items()]


class KeptTensors(torch.autograd.graph.saved_tensors_hooks):
    """What autograd keeps for the backward pass inside a `with` block, by module."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kept: list[tuple[Place, weakref.ref[_Kept]]] = []
        super().__init__(self._pack, lambda kept: kept.tensor)

    def _pack(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor.detach())
        self._kept.append((place_of(self._recorder.running), weakref.ref(kept)))
        return kept

    def count(self, model: Module) -> Counter[Place]:
        """Bytes of what is still kept, the model's own tensors left out, each tensor once."""
        seen = {id(t.untyped_storage()) for t in (*model.parameters(), *model.buffers())}
        num_bytes: Counter[Place] = Counter()
        for place, reference in self._kept:
            kept = reference()
            if kept is None or id(kept.storage) in seen:
                continue
            seen.add(id(kept.storage))
            num_bytes[place] += kept.storage.nbytes()
        return num_bytes


class _Kept:
    """Stands for a kept tensor in the graph: it dies when the graph lets the tensor go."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.storage = tensor.untyped_storage()


class AttentionOfCPU(TorchFunctionMode):
    """Makes torch's attention use the same kernel on the meta device as on a CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        return _attention(*args, **kwargs)


def _attention(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
    mask = settings.pop("attn_mask", None)
    with _disable_current_modes():  # stand-ins of the same shapes, but on the CPU
        alike: list[Any] = [torch.empty(x.shape[-1]).expand(x.shape) for x in (q, k, v)]
        alike_mask = None if mask is None else torch.ones(mask.shape[-1]).bool().expand(mask.shape)
        choose: Any = torch._fused_sdp_choice
        is_flash = choose(*alike, attn_mask=alike_mask, **settings)
    if not is_flash:
        fused: Any = torch.nn.functional.scaled_dot_product_attention
        return fused(q, k, v, attn_mask=mask, **settings)  # type: ignore[no-any-return]
    bias = None if mask is None else torch.empty_like(mask, dtype=q.dtype, device=q.device)
    for name in ("enable_gqa", "scale"):
        settings.pop(name, None)
    flash = _aten._scaled_dot_product_flash_attention_for_cpu
    return flash(q, k, v, **settings, attn_mask=bias)[0]  # type: ignore[no-any-return]


def _announce_methods(model: Module, running: list[str]) -> None:
    """Every method of every module puts the module's path on `running` while it runs."""

    def announced(method: Callable[..., Any], path: str) -> Callable[..., Any]:
        @wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            running.append(path)
            try:
                return method(*args, **kwargs)
            finally:
                running.pop()

        return run

    for path, module in model.named_modules():
        for name in _own_methods(module):
            is_head = not path and name == "logits"
            setattr(module, name, announced(getattr(module, name), _HEAD if is_head else path))


def _own_methods(module: Module) -> list[str]:
    """Those that torch's modules do not have, and `forward`."""
    names = [name for name, _ in inspect.getmembers(type(module), inspect.isfunction)]
    return [name for name in names if name == "forward" or not hasattr(Module, name)]


def _products_of(
    operation: Any, args: tuple[Any, ...], name: str
) -> Iterator[tuple[MatrixProduct, int]]:
    """The matrix products in an operation, and how often it does each."""
    if operation in (_aten.mm, _aten.bmm):
        yield _product(name, *args[:2])
    elif operation in (_aten.addmm, _aten.baddbmm, _aten.addmm_):
        yield _product(name, *args[1:3])
    elif operation is _aten._scaled_dot_product_flash_attention_for_cpu:
        (*lead, queries, d_head), keys = args[0].shape, args[1].shape[-2]
        gradients = 2 * args[0].requires_grad
        shapes = (queries, d_head, keys), (queries, keys, d_head)
        for each, shape in zip(_ATTENTION, shapes, strict=True):
            yield MatrixProduct(each, *shape, gradients=gradients), math.prod(lead)


def _product(name: str, a: Tensor, b: Tensor) -> tuple[MatrixProduct, int]:
    gradients = a.requires_grad + b.requires_grad
    product = MatrixProduct(name, a.shape[-2], a.shape[-1], b.shape[-1], gradients=gradients)
    return product, math.prod(a.shape[:-2])
