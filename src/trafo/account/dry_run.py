"""Run a model on the meta device, where tensors have shapes but no numbers, and note what it does.

Nothing is computed and nothing is allocated, so a model of any size can run. Every operation passes
a `Recorder`, which notes the matrix products, and the bytes of all tensors that are alive, with the
part of the model that is running.

A product of an (m, n) and an (n, p) matrix takes 2 m n p FLOPs: each of the m p results is a sum of
n products. Its gradients are two more products of the same size,

    C = A B:    dA = dC B^T,    dB = A^T dC,

which is why a backward pass costs twice its forward pass.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Module, ModuleList
from torch.overrides import TorchFunctionMode

from trafo.account.torch_private import (
    FLASH_ATTENTION,
    OperationMode,
    current_node,
    uses_flash_attention,
)
from trafo.account.workload import Workload, generate, loss, prepare

_aten: Any = torch.ops.aten
Moments = Counter[tuple["PartKey", bool]]
_HEAD = "lm_head"
_ATTENTION = ("scores", "weighted mean")
_TERMS = {
    "attn": "attention",
    "self_attn": "attention",
    "cross_attn": "cross-attention",
    "ffn": "feed-forward",
    "lm_head": "head",
    "": "rest",
}


class PartKey(NamedTuple):
    """The list of layers that a part of a model belongs to ("": none), and the part's name."""

    block: str
    name: str


@cache
def find_part(path: str) -> PartKey:
    """Find the part of a module: `layers.0.attn.q_proj` is in the projections of `layers`."""
    block, _, rest = path.partition(".")
    index, _, inner = rest.partition(".")
    if not index.isdigit():
        block, inner = "", path
    name, _, leaf = inner.partition(".")
    part = _TERMS.get(name, name)
    if "embeddings" in name:
        part = "embeddings"
    elif name.startswith("ln") or name.endswith("_norm"):
        part = "norms"
    elif part.endswith("attention") and leaf not in ("", "attention"):
        part = "projections" if part == "attention" else "cross projections"
    return PartKey(block, part)


@dataclass(frozen=True)
class MatrixProduct:
    """(m, n) times (n, p), done `times` times in a forward pass."""

    name: str
    m: int
    n: int
    p: int
    times: int = 1
    gradients: int = 2
    """how many of the two inputs need a gradient"""

    @property
    def forward_flops(self) -> int:
        """2 m n p for each product."""
        return self.times * 2 * self.m * self.n * self.p

    @property
    def backward_flops(self) -> int:
        """As many again for each gradient."""
        return self.gradients * self.forward_flops


def dry_run(model: Module, work: Workload, *, backward: bool = True) -> Recorder:
    """Record a training step, perhaps without its backward pass, or a pass of generation."""
    with AttentionOfCPU():
        if not work.is_training:
            return _dry_generation(model, work)
        recorder = Recorder(model)
        with recorder:
            with recorder.keeping():
                total = loss(model, work)
            if backward:
                total.backward()  # type: ignore[no-untyped-call]
    return recorder


@torch.no_grad()
def _dry_generation(model: Module, work: Workload) -> Recorder:
    with Recorder(model):
        cache, source = prepare(model, work)
    recorder = Recorder(model)
    with recorder:
        generate(model, work, cache, source)
    # It belongs to the decoder, the last list of layers.
    recorder.kept[PartKey(lists_of_layers(model)[-1], "cache")] = sum(_float_bytes(cache))
    return recorder


def lists_of_layers(model: Module) -> list[str]:
    """Return the names of the lists of layers, and "" for modules outside of them."""
    return ["", *(name for name, part in model.named_children() if isinstance(part, ModuleList))]


def _float_bytes(thing: Any) -> Iterator[int]:
    """Yield the bytes of all tensors of floating-point numbers inside."""
    if isinstance(thing, Tensor):
        yield thing.nbytes if thing.is_floating_point() else 0
    elif isinstance(thing, list | tuple):
        for inner in thing:
            yield from _float_bytes(inner)
    elif hasattr(thing, "__dict__"):
        yield from _float_bytes([*vars(thing).values()])


class Recorder(OperationMode):
    """A record of what `model`, and the loss after it, do inside a `with` block."""

    def __init__(self, model: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: Counter[tuple[PartKey, MatrixProduct]] = Counter()
        self.parts: dict[str, PartKey] = {}
        """by the path of each module that did something, in order"""
        self.most_bytes: Moments = Counter()
        """alive while a part runs, forward (False) or backward, in the order of these moments"""
        self.kept: Counter[PartKey] = Counter()
        """bytes kept after the forward pass: activations for the backward pass, or the KV cache"""
        self._live_bytes = 0
        self._running: list[str] = []
        self._paths: dict[int, str] = {}  # of what made each node of the graph
        self._last_path = _HEAD
        self._products_at: Counter[str] = Counter()
        self._saved: list[tuple[PartKey, weakref.ref[Tensor]]] = []
        own = (*model.parameters(), *model.buffers())
        self._own = {tensor.untyped_storage() for tensor in own}
        self._known = weakref.WeakSet(self._own)
        self._announce_methods(model)

    def record(self, operation: Any, args: tuple[Any, ...], out: list[Any]) -> None:
        """Note the products of an operation, and the bytes alive after it."""
        node, is_backward = current_node()
        if not is_backward:
            self._paths[node] = self._path
        # Adding up a gradient, which has no node, belongs to what computed it.
        self._last_path = path = self._paths.get(node, self._last_path)
        part = self.parts.setdefault(path, find_part(path))
        if not is_backward:
            for product, times in _products_of(operation, args, self._name_of_next_product(path)):
                self.products[part, product] += times
                self._products_at[path] += 1
        for tensor in out:
            if isinstance(tensor, Tensor):
                self._count(tensor)
        when = (part, is_backward)
        if self._live_bytes > self.most_bytes.get(when, -1):
            self.most_bytes.pop(when, None)
            self.most_bytes[when] = self._live_bytes

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Of what autograd saves inside, count at the end what is still there, each tensor once."""

        def pack(tensor: Tensor) -> Tensor:
            saved = tensor.detach()  # freed when the graph frees it
            self._saved.append((find_part(self._path), weakref.ref(saved)))
            return saved

        with saved_tensors_hooks(pack, lambda saved: saved):
            yield
        seen = set(self._own)
        for part, reference in self._saved:
            saved = reference()
            if saved is not None and (storage := saved.untyped_storage()) not in seen:
                seen.add(storage)
                self.kept[part] += storage.nbytes()

    @property
    def _path(self) -> str:
        """Of the module that runs, and outside of all modules of the loss, on the head."""
        return self._running[-1] if self._running else _HEAD

    def _name_of_next_product(self, path: str) -> str:
        """Name it as its layer; attention has two products, the scores come first."""
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
        if not is_attention or not uses_flash_attention(*args, **kwargs):
            return func(*args, **kwargs)
        q, mask = args[0], kwargs.get("attn_mask")
        bias = None if mask is None else torch.empty_like(mask, dtype=q.dtype, device=q.device)
        out = FLASH_ATTENTION(*args, is_causal=kwargs.get("is_causal", False), attn_mask=bias)
        return out[0]


def _products_of(
    operation: Any, args: tuple[Any, ...], name: str
) -> Iterator[tuple[MatrixProduct, int]]:
    """Yield the matrix products in an operation, and how often it does each."""
    if operation in (_aten.mm, _aten.bmm):
        yield _product(name, *args[:2])
    elif operation in (_aten.addmm, _aten.baddbmm, _aten.addmm_):
        yield _product(name, *args[1:3])
    elif operation is FLASH_ATTENTION:
        q, k, v = args[:3]
        yield _product(_ATTENTION[0], q, k, p=k.shape[-2])
        yield _product(_ATTENTION[1], q, v, n=k.shape[-2])


def _product(name: str, a: Tensor, b: Tensor, **sizes: int) -> tuple[MatrixProduct, int]:
    """a b, or one with other sizes."""
    sizes = {"m": a.shape[-2], "n": a.shape[-1], "p": b.shape[-1]} | sizes
    gradients = a.requires_grad + b.requires_grad
    return MatrixProduct(name, **sizes, gradients=gradients), math.prod(a.shape[:-2])
