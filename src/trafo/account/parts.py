"""The parts of a model, with their parameters, matrix products and memory.

A product of an (m, n) and an (n, p) matrix takes 2 m n p FLOPs: each of the m p results is a sum of
n products. Its gradients are two more products of the same size,

    C = A B:    dA = dC B^T,    dB = A^T dC,

which is why a backward pass costs twice its forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

_TERMS = {
    "attn": "attention",
    "self_attn": "attention",
    "cross_attn": "cross-attention",
    "ffn": "feed-forward",
    "lm_head": "head",
    "": "rest",
}


class Place(NamedTuple):
    """The list of layers that a part of a model belongs to ("": none), and the part's name."""

    block: str
    name: str


@cache
def place_of(path: str) -> Place:
    """`layers.0.attn.q_proj` -> the projections in `layers`."""
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
    return Place(block, part)


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


@dataclass(frozen=True)
class Part:
    """A row of the table: the cost of a part in all layers of its block together."""

    block: str
    name: str
    layers: int
    parameters: int
    forward_flops: int
    backward_flops: int
    products: tuple[MatrixProduct, ...]
    """of one layer"""
