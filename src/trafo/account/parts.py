"""What a model is made of, as numbers: weights, matrix products, and tensors kept for backward.

Everything else in this package is a view of these: the table, the JSON, the picture, the memory of
a step. A product of an (m, n) and an (n, p) matrix takes 2 m n p FLOPs: each of the m p results is
a sum of n products. Its gradients are two more products of the same size,

    C = A B:    dA = dC B^T,    dB = A^T dC,

which is why a backward pass costs twice its forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Role = Literal["hidden", "table", "vector"]


@dataclass(frozen=True)
class Weight:
    """One parameter tensor. Of all roles, Muon updates hidden matrices only."""

    name: str
    shape: tuple[int, ...]
    role: Role = "hidden"

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class MatrixProduct:
    """(m, n) times (n, p), done `times` times in a forward pass."""

    name: str
    m: int
    n: int
    p: int
    times: int = 1
    without_input_gradient: int = 0
    """how many of them have an input that is a constant: one gradient product less"""

    @property
    def forward_flops(self) -> int:
        return self.times * self._flops_of_one

    @property
    def backward_flops(self) -> int:
        return (2 * self.times - self.without_input_gradient) * self._flops_of_one

    @property
    def _flops_of_one(self) -> int:
        return 2 * self.m * self.n * self.p


@dataclass(frozen=True)
class Kept:
    """A tensor that lives from the forward pass until its part of the backward pass is done."""

    name: str
    numbers: int
    bytes_each: int = 4

    @property
    def bytes(self) -> int:
        return self.numbers * self.bytes_each


@dataclass(frozen=True)
class Component:
    """A part of a model that is worth a line in the table."""

    name: str
    weights: tuple[Weight, ...] = ()
    products: tuple[MatrixProduct, ...] = ()
    kept: tuple[Kept, ...] = ()
    workspace_bytes: int = 0
    """what it needs for a moment while it runs (in training: while its gradient is computed)"""

    @property
    def parameters(self) -> int:
        return sum(weight.numbers for weight in self.weights)

    @property
    def forward_flops(self) -> int:
        return sum(product.forward_flops for product in self.products)

    @property
    def backward_flops(self) -> int:
        return sum(product.backward_flops for product in self.products)

    @property
    def kept_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.kept)


@dataclass(frozen=True)
class Block:
    """Components that follow one another, the whole row of them `times` times."""

    name: str
    components: tuple[Component, ...]
    times: int = 1

    @property
    def parameters(self) -> int:
        return self.times * sum(part.parameters for part in self.components)


def total_forward_flops(blocks: Iterable[Block]) -> int:
    return sum(block.times * part.forward_flops for block in blocks for part in block.components)


def total_backward_flops(blocks: Iterable[Block]) -> int:
    return sum(block.times * part.backward_flops for block in blocks for part in block.components)


def total_kept_bytes(blocks: Iterable[Block]) -> int:
    return sum(block.times * part.kept_bytes for block in blocks for part in block.components)
