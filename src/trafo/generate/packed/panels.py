"""Weights in the order in which the kernels read them: panels of `LANES` output rows.

float32 as they are, or int8 with a scale for each output row: round(w / scale), where scale is the
row's largest magnitude / 127. int8 takes a quarter of the memory, and with few rows the time goes
into reading memory; its products are integers (`int_kernels.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor
from torch.nn import Module

from trafo.generate.config import WeightDtype
from trafo.generate.packed.kernels import Floats
from trafo.generate.packed.layers import Linear, Norm
from trafo.generate.packed.tiles import LANES
from trafo.nn import LayerNorm, RMSNorm
from trafo.nn import Linear as LinearLayer

NOTHING: Floats = np.empty((0, 0), np.float32)
"""in the place of what a model does not have"""


def quantize(
    weight: Float[Tensor, "out in"],
) -> tuple[Int8[Tensor, "out in"], Float[Tensor, " out"]]:
    """int8 weights and the scale of each row: weight = int8 * scale, up to scale / 2."""
    scales = weight.abs().amax(1).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


Part = tuple[Tensor, Tensor | None]
"""weight and bias"""


def pack_layers(layers: Sequence[Sequence[Module]], dtype: WeightDtype = "float32") -> Linear:
    """The same linear layer of every block, or several of them, whose rows are stacked."""
    parts = [[cast(LinearLayer, part) for part in layer] for layer in layers]
    return pack_linear([[(part.weight, part.bias) for part in layer] for layer in parts], dtype)


def pack_linear(layers: Sequence[Sequence[Part]], dtype: WeightDtype = "float32") -> Linear:
    """The same from weights and biases alone."""
    has_bias = any(bias is not None for _, bias in layers[0])
    matrices = (torch.cat([weight.detach() for weight, _ in layer]) for layer in layers)
    floats, ints, scales = _NO_FLOATS, _NO_INTS, NOTHING
    if dtype == "int8":
        small = [quantize(matrix) for matrix in matrices]
        ints = _stack([_paired_panels(matrix.numpy()) for matrix, _ in small])
        scales = _stack([_padded(scale.numpy()) for _, scale in small])
    else:
        floats = _stack([_panels(matrix.numpy()) for matrix in matrices])
    bias = _stack([_bias(layer) for layer in layers]) if has_bias else NOTHING
    return Linear(floats, ints, scales, bias)


def pack_norm(layers: Sequence[Module | None]) -> Norm:
    """The same norm of every block; None: there is none."""
    if layers[0] is None:
        return NO_NORM
    norms = [layer for layer in layers if isinstance(layer, RMSNorm | LayerNorm)]
    assert len(norms) == len(layers)
    gains = np.stack([array(norm.weight) for norm in norms])
    shifts = [array(norm.bias) for norm in norms if isinstance(norm, LayerNorm)]
    return Norm(gains, np.stack(shifts) if shifts else NOTHING, norms[0].eps)


def array(tensor: Tensor) -> Floats:
    """A tensor as an array of adjacent numbers."""
    return np.ascontiguousarray(tensor.detach().numpy())


_NO_FLOATS = np.empty((0, 0, 0, LANES), np.float32)
_NO_INTS = np.empty((0, 0, 0, LANES, 2), np.int8)
NO_LINEAR = Linear(_NO_FLOATS, _NO_INTS, NOTHING, NOTHING)
NO_NORM = Norm(NOTHING, NOTHING, 0.0)


def _stack(layers: list[np.ndarray]) -> np.ndarray:
    """One array of all, freeing each as it is copied."""
    every = np.empty((len(layers), *layers[0].shape), layers[0].dtype)
    for place in reversed(range(len(layers))):
        every[place] = layers.pop()
    return every


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


def _bias(layer: Sequence[Part]) -> Floats:
    parts = [
        np.zeros(len(weight), np.float32) if bias is None else bias.detach().numpy()
        for weight, bias in layer
    ]
    return _padded(np.concatenate(parts))
