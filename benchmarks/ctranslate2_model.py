"""CTranslate2's `model.bin` in: a pre-norm Transformer as OpenNMT trains it, in float32.

The file: version, name and revision of the kind of model, then each variable with its name, shape,
bytes per number and numbers. Version 2 is read; a "TransformerBase" has 8 heads.

Its positions are OpenNMT's sinusoids: counted from 1, all sines before all cosines, and the
longest wave is exactly 10000 times the shortest. The model that is returned has them, but a
checkpoint of it would not: it is for translating, not for training.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from trafo.checkpoint.convert.weights import fill, require_names
from trafo.errors import FormatError
from trafo.models import EncoderDecoder, EncoderDecoderConfig

_VERSION, _NUM_HEADS = 2, {"TransformerBase": 8, "TransformerBig": 16}
_LAYER_PARTS = {
    "self_attention/layer_norm": "ln1",
    "self_attention/linear_0": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "self_attention/linear_1": "self_attn.output_proj",
    "attention/layer_norm": "ln2",
    "attention/linear_0": "cross_attn.q_proj",
    "attention/linear_1": "cross_attn.k_proj cross_attn.v_proj",
    "attention/linear_2": "cross_attn.output_proj",
    "ffn/linear_0": "ffn.w1",
    "ffn/linear_1": "ffn.w2",
}
_PARTS = {
    "encoder/embeddings": "source_embeddings",
    "decoder/embeddings": "target_embeddings",
    "encoder/layer_norm": "encoder_norm",
    "decoder/layer_norm": "decoder_norm",
    "decoder/projection": "lm_head",
}
_KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


def load_ctranslate2(path: str | Path, *, context_length: int = 512) -> EncoderDecoder:
    """The model in a `model.bin`, ready to translate."""
    path = Path(path)
    try:
        kind, variables = _read(path.read_bytes())
    except FormatError as error:
        raise FormatError(error.what, where=str(path), hint=error.hint) from None
    except (struct.error, ValueError, UnicodeDecodeError):
        raise FormatError("not a CTranslate2 model, or cut off", where=str(path)) from None
    if kind not in _NUM_HEADS:
        known = " and ".join(_NUM_HEADS)
        raise FormatError(f"a model of the kind {kind}", where=str(path), hint=f"known: {known}")
    renamed = {name: _renamed(name, tensor) for name, tensor in variables.items()}
    require_names(variables, [name for name, ours in renamed.items() if ours])
    weights = {ours: tensor for each in renamed.values() for ours, tensor in each.items()}
    config = _config(variables, _NUM_HEADS[kind], context_length)
    model = cast(EncoderDecoder, fill(config, weights))
    model.positions.table.copy_(opennmt_positions(context_length, config.d_model))
    return model


def opennmt_positions(num_positions: int, d_model: int) -> Float[Tensor, "positions d_model"]:
    """sin and cos of (i + 1) / 10000^(k / (d/2 - 1)), the sines first."""
    waves = torch.arange(d_model // 2, dtype=torch.float64)
    frequencies = torch.exp(waves * -(math.log(10_000) / (d_model // 2 - 1)))
    angles = (torch.arange(num_positions, dtype=torch.float64) + 1)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


def _read(content: bytes) -> tuple[str, dict[str, Tensor]]:
    """The kind of model, and its variables by name."""
    place = 0

    def number(kind: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from("<" + kind, content, place)
        place += struct.calcsize(kind)
        return int(value)

    def text() -> str:
        nonlocal place
        length = number("H")
        place += length
        return content[place - length : place].rstrip(b"\0").decode()

    version = number("I")
    if version != _VERSION:
        raise FormatError(f"CTranslate2 format {version}", hint=f"trafo reads format {_VERSION}")
    kind, _revision = text(), number("I")
    variables: dict[str, Tensor] = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        size, count = number("B"), number("I")
        if size != 4:
            raise FormatError(f"{name} has {size} bytes per number", hint="convert to float32")
        numbers = np.frombuffer(content, "<f4", count, place)
        variables[name] = torch.from_numpy(numbers.reshape(shape).copy())
        place += size * count
    return kind, variables


def _renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Our names for a variable; several where it holds several matrices, none if it is unknown."""
    part, _, kind = name.rpartition("/")
    if kind not in _KINDS:
        return {}
    if part in _PARTS:
        return {f"{_PARTS[part]}.{_KINDS[kind]}": tensor}
    stack, _, rest = part.partition("/")
    layer, _, inner = rest.partition("/")
    # The norm before the feed-forward layer is the last of the layer.
    last = "ln2" if stack == "encoder" else "ln3"
    ours = {**_LAYER_PARTS, "ffn/layer_norm": last}.get(inner, "").split()
    index = layer.removeprefix("layer_")
    pieces = tensor.chunk(len(ours)) if ours else ()
    named = zip(ours, pieces, strict=True)
    return {f"{stack}.{index}.{each}.{_KINDS[kind]}": piece for each, piece in named}


def _config(
    variables: dict[str, Tensor], num_heads: int, context_length: int
) -> EncoderDecoderConfig:
    def layers(stack: str) -> int:
        return len({n.split("/")[1] for n in variables if n.startswith(f"{stack}/layer_")}) - 1

    target_vocab, d_model = variables["decoder/embeddings/weight"].shape
    return EncoderDecoderConfig(
        source_vocab_size=len(variables["encoder/embeddings/weight"]),
        target_vocab_size=target_vocab,
        context_length=context_length,
        d_model=d_model,
        num_encoder_layers=layers("encoder"),
        num_decoder_layers=layers("decoder"),
        num_heads=num_heads,
        d_ff=len(variables["encoder/layer_0/ffn/linear_0/weight"]),
        norm_placement="pre",
        attention_bias=True,
        head_bias=True,
        dropout=0.0,
    )
