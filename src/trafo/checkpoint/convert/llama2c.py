"""llama2.c's `.bin` files: seven int32, then every tensor of the network as float32.

The numbers are dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size and seq_len; a negative
vocab_size says that the head is not tied. Rotary pairs are neighbours, as ours are.
"""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trafo.errors import FormatError
from trafo.models import TransformerLM, TransformerLMConfig

_HEADER = struct.Struct("<7i")
_LATER_VERSIONS = b"24ka"  # their mark at the start of a file, as it lies on disk


def load_llama2c(path: str | Path) -> TransformerLM:
    """The model in a `.bin` file of llama2.c's first format, the one its `run.c` reads."""
    path = Path(path)
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if header.startswith(_LATER_VERSIONS):
        raise FormatError("a later llama2.c format", where=str(path), hint="export with version 0")
    if len(header) < _HEADER.size:
        raise FormatError("too short for a llama2.c model", where=str(path))
    config = _config(header, path)
    model = TransformerLM.from_config(config)
    model.load_state_dict(_read_state(path, config))
    return model.eval()


def _config(header: bytes, path: Path) -> TransformerLMConfig:
    d_model, d_ff, layers, heads, kv_heads, vocab, context = _HEADER.unpack(header)
    if min(d_model, d_ff, layers, heads, kv_heads, abs(vocab), context) < 1 or d_model > 2**20:
        raise FormatError("not a llama2.c model, its header makes no sense", where=str(path))
    return TransformerLMConfig(
        vocab_size=abs(vocab),
        context_length=context,
        d_model=d_model,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        d_ff=d_ff,
        norm_eps=1e-5,
        tied_head=vocab > 0,
    )


def _shapes(config: TransformerLMConfig) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors in the order of the file; `{i}` marks one for each layer, stored together."""
    layers, d, d_ff = config.num_layers, config.d_model, config.feed_forward_size
    d_kv = (config.num_kv_heads or config.num_heads) * config.d_head
    tables = config.context_length * config.d_head // 2
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("token_embeddings.weight", (config.vocab_size, d)),
        ("layers.{i}.ln1.weight", (layers, d)),
        ("layers.{i}.attn.q_proj.weight", (layers, d, d)),
        ("layers.{i}.attn.k_proj.weight", (layers, d_kv, d)),
        ("layers.{i}.attn.v_proj.weight", (layers, d_kv, d)),
        ("layers.{i}.attn.output_proj.weight", (layers, d, d)),
        ("layers.{i}.ln2.weight", (layers, d)),
        ("layers.{i}.ffn.w1.weight", (layers, d_ff, d)),
        ("layers.{i}.ffn.w2.weight", (layers, d, d_ff)),
        ("layers.{i}.ffn.w3.weight", (layers, d_ff, d)),
        ("ln_final.weight", (d,)),
        ("", (2 * tables,)),  # cos and sin of the rotation, which we compute ourselves
    ]
    return shapes if config.tied_head else [*shapes, ("lm_head.weight", (config.vocab_size, d))]


def _read_state(path: Path, config: TransformerLMConfig) -> dict[str, Tensor]:
    shapes = _shapes(config)
    expected = _HEADER.size + 4 * sum(int(np.prod(shape)) for _, shape in shapes)
    if path.stat().st_size != expected:
        raise FormatError(
            f"{path.stat().st_size:,} bytes, its header asks for {expected:,}", where=str(path)
        )
    numbers = torch.from_numpy(np.fromfile(path, dtype="<f4", offset=_HEADER.size))
    state: dict[str, Tensor] = {}
    for name, shape in shapes:
        size = int(np.prod(shape))
        tensor, numbers = numbers[:size].view(shape), numbers[size:]
        if "{i}" in name:
            state.update({name.replace("{i}", str(i)): part for i, part in enumerate(tensor)})
        elif name:
            state[name] = tensor
    return state
