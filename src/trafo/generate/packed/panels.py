"""Weights in the order in which the kernels read them: panels of `LANES` output rows.

float32 as they are, or int8 with a scale for each output row: round(w / scale), where scale is the
row's largest magnitude / 127. int8 takes a quarter of the memory, and with few rows the time goes
into reading memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor

from trafo.generate.engine.scheduler import Weights
from trafo.generate.packed import kernels
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
    num_panels = -(-len(matrix) // LANES)
    if kind == "int8":
        small, scales = quantize(matrix)
        panels, row_scales = _panels(small.numpy()), _padded(scales.numpy())
    else:
        panels, row_scales = _panels(matrix.numpy()), None

    def apply(x: Floats) -> Floats:
        out = np.empty((len(x), num_panels * LANES), np.float32)
        if row_scales is None:
            kernels.products(x, panels, out)
        else:
            kernels.scaled_products(x, panels, row_scales, out)
        if shift is not None:
            out += shift
        return out

    return apply


def _panels(matrix: np.ndarray) -> np.ndarray:
    """(out, in) -> (out / LANES, in, LANES)."""
    padded = _padded(matrix)
    cut = padded.reshape(-1, LANES, matrix.shape[1])
    return np.ascontiguousarray(cut.transpose(0, 2, 1))


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
