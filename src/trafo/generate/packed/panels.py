"""Weights in the order in which the kernels read them: panels of `LANES` output rows.

float32 as they are, or int8 with a scale for each output row: round(w / scale), where scale is the
row's largest magnitude / 127. int8 takes a quarter of the memory, and with few rows the time goes
into reading memory; its products are integers (`int_kernels.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor

from trafo.generate.engine.scheduler import Weights
from trafo.generate.packed import int_kernels, kernels
from trafo.generate.packed.kernels import Floats
from trafo.generate.packed.tiles import LANES

Rows = Callable[[Floats], Floats]


def quantize(
    weight: Float[Tensor, "out in"],
) -> tuple[Int8[Tensor, "out in"], Float[Tensor, " out"]]:
    """int8 weights and the scale of each row: weight = int8 * scale, up to scale / 2."""
    scales = weight.abs().amax(1).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


def linear(weights: list[Tensor], biases: list[Tensor | None], kind: Weights) -> Rows:
    """x -> x W^T + b, for the rows of several matrices below each other.

    The result may be wider than that, whole panels.
    """
    matrix = torch.cat([weight.detach() for weight in weights])
    shift = _bias(weights, biases)
    product = _int8_product(matrix) if kind == "int8" else _product(matrix)
    if shift is None:
        return product

    def apply(x: Floats) -> Floats:
        out = product(x)
        out += shift
        return out

    return apply


def _product(matrix: Tensor) -> Rows:
    panels = _panels(matrix.numpy())

    def apply(x: Floats) -> Floats:
        out = np.empty((len(x), len(panels) * LANES), np.float32)
        kernels.products(x, panels, out)
        return out

    return apply


def _int8_product(matrix: Tensor) -> Rows:
    small, scales = quantize(matrix)
    panels, row_scales = _paired_panels(small.numpy()), _padded(scales.numpy())

    def apply(x: Floats) -> Floats:
        out = np.empty((len(x), len(panels) * LANES), np.float32)
        int_kernels.int8_products(x, panels, row_scales, out)
        return out

    return apply


def _panels(matrix: np.ndarray) -> np.ndarray:
    """(out, in) -> (out / LANES, in, LANES)."""
    padded = _padded(matrix)
    cut = padded.reshape(-1, LANES, matrix.shape[1])
    return np.ascontiguousarray(cut.transpose(0, 2, 1))


def _paired_panels(matrix: np.ndarray) -> np.ndarray:
    """(out, in) -> (out / LANES, in / 2, LANES, 2); a last column without a pair gets zeros."""
    padded = np.pad(_padded(matrix), ((0, 0), (0, matrix.shape[1] % 2)))
    cut = padded.reshape(-1, LANES, padded.shape[1] // 2, 2)
    return np.ascontiguousarray(cut.transpose(0, 2, 1, 3))


def _padded(rows: np.ndarray) -> np.ndarray:
    """With rows of zeros up to whole panels."""
    missing = -len(rows) % LANES
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])


def _bias(weights: list[Tensor], biases: list[Tensor | None]) -> Floats | None:
    if all(bias is None for bias in biases):
        return None
    parts = [
        np.zeros(len(weight), np.float32) if bias is None else bias.detach().numpy()
        for weight, bias in zip(weights, biases, strict=True)
    ]
    return _padded(np.concatenate(parts))
