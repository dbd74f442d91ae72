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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _get_sequence_nr
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Module, ModuleList
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from trafo.account.meta_run import run_on_meta
from trafo.account.parts import MatrixProduct, Place, place_of
from trafo.account.workload import Workload, generate, loss, prepare

_aten: Any = torch.ops.aten
_HEAD = "lm_head"
_ATTENTION = ("scores", "weighted mean")


def dry_run(model: Module, work: Workload, *, backward: bool = True) -> Recorder:
    """Record a training step, perhaps without its backward pass, or a pass of generation."""
    if not work.is_training:
        return _dry_generation(model, work)
    recorder = Recorder(model)
    with AttentionOfCPU(), recorder:
        with recorder.keeping():
            total = loss(model, work)
        if backward:
            total.backward()  # type: ignore[no-untyped-call]
    return recorder


def _dry_generation(model: Module, work: Workload) -> Recorder:
    with torch.no_grad(), AttentionOfCPU():
        with Recorder(model):
            cache, source = prepare(model, work)
        recorder = Recorder(model)
        with recorder:
            generate(model, work, cache, source)
    # It belongs to the decoder, the last list of layers.
    recorder.kept[Place(lists_of_layers(model)[-1], "cache")] = sum(_float_bytes(cache))
    return recorder


def lists_of_layers(model: Module) -> list[str]:
    """Their names; "" stands for modules outside of them."""
    return ["", *(name for name, part in model.named_children() if isinstance(part, ModuleList))]


def _float_bytes(thing: Any) -> Iterator[int]:
    """Of all tensors of floating-point numbers inside."""
    if isinstance(thing, Tensor):
        yield thing.nbytes if thing.is_floating_point() else 0
    elif isinstance(thing, list | tuple):
        for inner in thing:
            yield from _float_bytes(inner)
    elif hasattr(thing, "__dict__"):
        yield from _float_bytes([*vars(thing).values()])


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what `model`, and the loss after it, do inside a `with` block."""

    def __init__(self, model: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: Counter[tuple[Place, MatrixProduct]] = Counter()
        self.places: dict[str, Place] = {}
        """by the path of each module that did something, in order"""
        self.most_bytes: Counter[tuple[Place, bool]] = Counter()
        """alive while a part runs, forward (False) or backward; in the order of these moments"""
        self.kept: Counter[Place] = Counter()
        """bytes kept after the forward pass: activations for the backward pass, or the KV cache"""
        self._live_bytes = 0
        self._running: list[str] = []
        self._paths: dict[int, str] = {}  # of what made each node of the graph
        self._last_path = _HEAD
        self._products_at: Counter[str] = Counter()
        self._saved: list[tuple[Place, weakref.ref[Tensor]]] = []
        own = (*model.parameters(), *model.buffers())
        self._own = {tensor.untyped_storage() for tensor in own}
        self._known = weakref.WeakSet(self._own)
        self._announce_methods(model)

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
        when = (place, node is not None)
        if self._live_bytes > self.most_bytes.get(when, -1):
            self.most_bytes.pop(when, None)
            self.most_bytes[when] = self._live_bytes
        return out

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Of what autograd saves inside, count at the end what is still there, each tensor once."""

        def pack(tensor: Tensor) -> Tensor:
            saved = tensor.detach()  # freed when the graph frees it
            self._saved.append((place_of(self._path), weakref.ref(saved)))
            return saved

        with saved_tensors_hooks(pack, lambda saved: saved):
            yield
        seen = set(self._own)
        for place, reference in self._saved:
            saved = reference()
            if saved is not None and (storage := saved.untyped_storage()) not in seen:
                seen.add(storage)
                self.kept[place] += storage.nbytes()

    @property
    def _path(self) -> str:
        """Of the module that runs; outside of all modules it is the loss, on the head."""
        return self._running[-1] if self._running else _HEAD

    def _forward_path(self) -> str:
        self._paths[_get_sequence_nr() - 1] = self._path
        return self._path

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

    def _announce_methods(self, model: Module) -> None:
        """While a method of a module runs, the module's path is the last of `_running`."""
        for path, module in model.named_modules():
            for name, _ in inspect.getmembers(type(module), inspect.isfunction):
                if name == "forward" or not hasattr(Module, name):
                    at = self._announced(_HEAD if (path, name) == ("", "logits") else path)
                    setattr(module, name, at(getattr(module, name)))

    @contextmanager
    def _announced(self, path: str) -> Iterator[None]:
        self._running.append(path)
        try:
            yield
        finally:
            self._running.pop()


class AttentionOfCPU(TorchFunctionMode):
    """Makes torch's attention use the same kernel on the meta device as on a CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_attention = func is torch.nn.functional.scaled_dot_product_attention
        if not is_attention or not _is_flash(*args, **kwargs):
            return func(*args, **kwargs)
        q, mask = args[0], kwargs.get("attn_mask")
        bias = None if mask is None else torch.empty_like(mask, dtype=q.dtype, device=q.device)
        flash = _aten._scaled_dot_product_flash_attention_for_cpu
        return flash(*args, is_causal=kwargs.get("is_causal", False), attn_mask=bias)[0]


def _is_flash(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **settings: Any
) -> bool:
    """What torch chooses on a CPU, asked with stand-ins of the same shapes."""
    with _disable_current_modes():
        alike = [torch.empty(x.shape[-1]).expand(x.shape) for x in (q, k, v)]
        if attn_mask is not None:
            settings["attn_mask"] = torch.ones(1).bool().expand(attn_mask.shape)
        choose: Any = torch._fused_sdp_choice
        return bool(choose(*alike, **settings))


def _products_of(
    operation: Any, args: tuple[Any, ...], name: str
) -> Iterator[tuple[MatrixProduct, int]]:
    """The matrix products in an operation, and how often it does each."""
    if operation in (_aten.mm, _aten.bmm):
        yield _product(name, *args[:2])
    elif operation in (_aten.addmm, _aten.baddbmm, _aten.addmm_):
        yield _product(name, *args[1:3])
    elif operation is _aten._scaled_dot_product_flash_attention_for_cpu:
        q, k, v = args[:3]
        yield _product(_ATTENTION[0], q, k, p=k.shape[-2])
        yield _product(_ATTENTION[1], q, v, n=k.shape[-2])


def _product(name: str, a: Tensor, b: Tensor, **sizes: int) -> tuple[MatrixProduct, int]:
    """a b, or one with other sizes."""
    sizes = {"m": a.shape[-2], "n": a.shape[-1], "p": b.shape[-1]} | sizes
    gradients = a.requires_grad + b.requires_grad
    return MatrixProduct(name, **sizes, gradients=gradients), math.prod(a.shape[:-2])
