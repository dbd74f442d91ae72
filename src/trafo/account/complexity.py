"""Complexity of layers: how their time grows with the sequence length, measured and in theory.

    self-attention          O(n^2 d)      every position attends to every other
    restricted attention    O(r n d)      every position attends to r others
    recurrent               O(n d^2)      a matrix for each position, one after the other
    convolution             O(k n d^2)    a matrix for each of k neighbours of each position

(Vaswani et al., 2017, table 1.) A power law t = c n^a is a line of slope a in a log-log plot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trafo.errors import require, require_at_least
from trafo.fast.attention import windowed_attention

KERNEL_SIZE = 5


@dataclass(frozen=True)
class Growth:
    """Seconds at each length, and the power of the length that fits them."""

    layer: str
    theory: str
    expected: float
    lengths: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def fitted(self) -> slice:
        """The longer half: in short sequences, overhead dominates."""
        return slice((len(self.lengths) - 1) // 2, None)

    @property
    def exponent(self) -> float:
        """The measured a of t = c n^a."""
        return fit_power_law(self.lengths[self.fitted], self.seconds[self.fitted])[0]


def fit_power_law(lengths: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Fit a and c of t = c n^a: the line through log t over log n, by least squares."""
    slope, start = np.polyfit(np.log(lengths), np.log(seconds), 1)
    return float(slope), math.exp(start)


@torch.no_grad()
def measure_growth(
    lengths: Sequence[int], d_model: int = 64, window: int = 64, rounds: int = 7
) -> list[Growth]:
    """Time every layer at every length, in turn, and take the best of several rounds.

    On one thread and in processor time, so that other programs do not disturb.
    """
    fits = len(lengths) > 1 and sorted({KERNEL_SIZE - 1, *lengths})[1:] == list(lengths)
    what = f"lengths are {' '.join(map(str, lengths))}"
    require(fits, what, f"give two or more, growing, from {KERNEL_SIZE} on")
    require_at_least(1, d_model=d_model, window=window)
    matrix = torch.randn(d_model, d_model) / math.sqrt(d_model)
    kernel = torch.randn(KERNEL_SIZE * d_model, d_model) / math.sqrt(KERNEL_SIZE * d_model)
    layers: list[tuple[str, str, int, Callable[[Tensor], Tensor]]] = [
        ("self-attention", "O(n² d)", 2, attend_to_all),
        (f"restricted, r = {window}", "O(r n d)", 1, lambda x: windowed_attention(x, x, x, window)),
        ("recurrent", "O(n d²)", 1, lambda x: recur(x, matrix)),
        (f"convolution, k = {KERNEL_SIZE}", "O(k n d²)", 1, lambda x: convolve(x, kernel)),
    ]
    seconds = np.full((rounds, len(lengths), len(layers)), np.inf)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for index in np.ndindex(seconds.shape):
        x = torch.randn(lengths[index[1]], d_model)
        start = process_time()
        layers[index[2]][-1](x)
        seconds[index] = process_time() - start
    torch.set_num_threads(threads)
    best = seconds.min(0).T.tolist()
    return [
        Growth(name, theory, expected, tuple(lengths), tuple(times))
        for (name, theory, expected, _), times in zip(layers, best, strict=True)
    ]


def attend_to_all(x: Tensor) -> Tensor:
    """Attend by the fused kernel: writing n^2 weights to memory takes as long as the products."""
    heads = x[None, None]
    out: Tensor = scaled_dot_product_attention(heads, heads, heads)
    return out


def recur(x: Tensor, matrix: Tensor) -> Tensor:
    """h_t = tanh(W h_(t-1) + x_t): each step waits for the one before it."""
    states = [torch.zeros_like(x[0])]
    for word in x:
        states.append(torch.tanh(torch.addmv(word, matrix, states[-1])))
    return torch.stack(states[1:])


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """y_t = W [x_t; ...; x_(t+k-1)], all positions in one product."""
    neighbours = x.unfold(0, kernel.shape[0] // x.shape[1], 1)  # (positions, d_model, k)
    return neighbours.flatten(1) @ kernel
