"""llama2.c's `.bin` files, in and out: seven int32, then every tensor of the network as float32.

The numbers are dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size and seq_len; a negative
vocab_size says that the head is not tied. Rotary pairs are neighbours, as ours are.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trafo.checkpoint.convert.hugging_face_config import family_of
from trafo.checkpoint.convert.hugging_face_tokenizer import write_markers
from trafo.checkpoint.convert.parity import Parity, save_checked
from trafo.checkpoint.convert.weights import fill
from trafo.checkpoint.locate import LLAMA2C_HEADER, TOKENIZER_SUFFIX, read_llama2c_header
from trafo.errors import ConfigError, FormatError, require
from trafo.models import CausalLM, TransformerLM, TransformerLMConfig
from trafo.nn.position import angles
from trafo.tokenizer.tokenizer import Tokenizer


def save_llama2c(
    model: CausalLM, path: str | Path, *, tokenizer: Tokenizer | None = None
) -> Parity:
    """Write a `.bin` file, `<path>.parity.json` and, in trafo's own form, `<path>.tokenizer`.

    llama2.c's tokenizer files are SentencePiece's, so they cannot hold ours.
    """
    path = Path(path)
    if not isinstance(model, TransformerLM):
        raise ConfigError(f"llama2.c has no counterpart of a {type(model).__name__}")
    _require_llama2c_shape(model.config)

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            file.write(_header(model.config))
            for numbers in _numbers_in_order(model):
                file.write(numbers.tobytes())

    parity = save_checked(model, path, "llama2c", write, load_llama2c)
    if tokenizer is not None:
        folder = path.with_name(path.name + TOKENIZER_SUFFIX)
        tokenizer.save(folder)
        write_markers(tokenizer, folder)
    return parity


def load_llama2c(path: str | Path) -> CausalLM:
    """The model in a `.bin` file of llama2.c's first format, the one its `run.c` reads."""
    path = Path(path)
    config = read_llama2c_config(path)
    return fill(config, _read_state(path, config))


def read_llama2c_config(path: Path) -> TransformerLMConfig:
    """The sizes in the first 28 bytes."""
    d_model, d_ff, layers, heads, kv_heads, vocab, context = read_llama2c_header(path)
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


def _require_llama2c_shape(config: TransformerLMConfig) -> None:
    family_of(config)
    # run.c computes with these
    fixed = {"rope_theta": 10_000.0, "rope_scaling": "none", "norm_eps": 1e-5, "qk_norm": False}
    fixed |= {"qkv_bias": False, "window": None, "head_size": None}
    for name, value in fixed.items():
        given = getattr(config, name)
        require(given == value, f"{name} is {given}, llama2.c has {value}", "use another format")


def _header(config: TransformerLMConfig) -> bytes:
    return LLAMA2C_HEADER.pack(
        config.d_model,
        config.feed_forward_size,
        config.num_layers,
        config.num_heads,
        config.num_kv_heads or config.num_heads,
        config.vocab_size if config.tied_head else -config.vocab_size,
        config.context_length,
    )


def _numbers_in_order(model: TransformerLM) -> Iterator[np.ndarray[Any, Any]]:
    state = {name: t.detach().float().cpu() for name, t in model.state_dict().items()}
    for name, _ in _shapes(model.config):
        if not name:
            pair = angles(model.config.rope_theta, model.config.d_head, model.config.context_length)
            yield torch.stack([pair.cos(), pair.sin()]).numpy().astype("<f4")
        elif "{i}" in name:
            for i in range(model.config.num_layers):
                yield state[name.replace("{i}", str(i))].numpy().astype("<f4")
        else:
            yield state[name].numpy().astype("<f4")


def _shapes(config: TransformerLMConfig) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors in the order of the file, where `{i}` marks those of all layers together."""
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
    expected = LLAMA2C_HEADER.size + 4 * sum(int(np.prod(shape)) for _, shape in shapes)
    if path.stat().st_size != expected:
        raise FormatError(
            f"{path.stat().st_size:,} bytes, its header asks for {expected:,}", where=str(path)
        )
    numbers = torch.from_numpy(np.fromfile(path, dtype="<f4", offset=LLAMA2C_HEADER.size))
    state: dict[str, Tensor] = {}
    for name, shape in shapes:
        size = int(np.prod(shape))
        tensor, numbers = numbers[:size].view(shape), numbers[size:]
        if "{i}" in name:
            state.update({name.replace("{i}", str(i)): part for i, part in enumerate(tensor)})
        elif name:
            state[name] = tensor
    return state
