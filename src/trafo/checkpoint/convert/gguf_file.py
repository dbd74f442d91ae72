"""GGUF files, which llama.cpp runs: metadata, a tokenizer, tensors; written and read back."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from trafo.checkpoint.convert.gguf_tensors import from_gguf_state, to_gguf_state
from trafo.checkpoint.convert.gguf_tokenizer import write_tokenizer
from trafo.checkpoint.convert.parity import Parity, measure_parity
from trafo.errors import ConfigError, FormatError, MissingPackageError
from trafo.models import GPT2, CausalLM, GPT2Config, TransformerLM, TransformerLMConfig
from trafo.runtime.atomic import atomic_write
from trafo.tokenizer.tokenizer import Tokenizer

Dtype = Literal["float32", "float16", "bfloat16"]


def save_gguf(
    model: CausalLM,
    path: str | Path,
    *,
    tokenizer: Tokenizer | None = None,
    dtype: Dtype = "float32",
) -> Parity:
    """Write one file for llama.cpp; `<path>.parity.json` says how well it agrees."""
    path = Path(path)
    gguf = _gguf()
    if not isinstance(model, TransformerLM | GPT2):
        raise ConfigError(f"llama.cpp has no counterpart of a {type(model).__name__}")
    with TemporaryDirectory() as scratch:
        draft = Path(scratch) / "model.gguf"
        writer = gguf.GGUFWriter(draft, "llama" if isinstance(model, TransformerLM) else "gpt2")
        _write_config(writer, model.config)
        write_tokenizer(writer, gguf, model.config.vocab_size, tokenizer)
        for name, tensor in to_gguf_state(model).items():
            kind = _storage(gguf, tensor, dtype)
            numbers = gguf.quants.quantize(tensor.detach().float().cpu().numpy(), kind)
            writer.add_tensor(name, numbers, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        parity = measure_parity(model, load_gguf(draft), f"gguf-{dtype}")
        with draft.open("rb") as done, atomic_write(path) as file:
            shutil.copyfileobj(done, file)
    parity.write(path.with_name(path.name + ".parity.json"))
    return parity


def load_gguf(path: str | Path) -> TransformerLM | GPT2:
    """A model from a GGUF file of float32 and float16 tensors."""
    gguf = _gguf()
    try:
        reader = gguf.GGUFReader(Path(path))
    except (ValueError, OSError) as error:
        raise FormatError(f"not a GGUF file: {error}", where=str(path)) from error
    tensors = {tensor.name: _tensor(gguf, tensor, path) for tensor in reader.tensors}
    return from_gguf_state(tensors, _read_config(reader, "output.weight" not in tensors, path))


def _gguf() -> ModuleType:
    try:
        import gguf
    except ImportError as error:
        raise MissingPackageError(
            "GGUF files need the package gguf", hint="pip install gguf"
        ) from error
    return gguf  # type: ignore[no-any-return]


def _write_config(writer: Any, config: TransformerLMConfig | GPT2Config) -> None:
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.feed_forward_size)
    writer.add_head_count(config.num_heads)
    writer.add_vocab_size(config.vocab_size)
    if isinstance(config, GPT2Config):
        writer.add_layer_norm_eps(config.norm_eps)
        return
    writer.add_head_count_kv(config.num_kv_heads or config.num_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.d_head)
    writer.add_rope_freq_base(config.rope_theta)


def _storage(gguf: ModuleType, tensor: Tensor, dtype: Dtype) -> Any:
    """Vectors (norms, biases) stay float32: llama.cpp wants them so."""
    kinds = gguf.GGMLQuantizationType
    names = {"float32": kinds.F32, "float16": kinds.F16, "bfloat16": kinds.BF16}
    return names[dtype] if tensor.ndim > 1 else kinds.F32


def _tensor(gguf: ModuleType, stored: Any, path: str | Path) -> Tensor:
    """In float32, whatever it is stored in."""
    try:
        numbers = gguf.quants.dequantize(stored.data, stored.tensor_type)
    except NotImplementedError:
        raise FormatError(
            f"{stored.name} is stored as {stored.tensor_type.name}, which trafo does not read",
            where=str(path),
            hint="use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_K or Q6_K",
        ) from None
    return torch.from_numpy(np.array(numbers, dtype=np.float32))


def _read_config(
    reader: Any, tied_head: bool, path: str | Path
) -> TransformerLMConfig | GPT2Config:
    def value(key: str) -> Any:
        field = reader.get_field(key)
        if field is None:
            raise FormatError(f"no field {key!r}", where=str(path))
        return field.contents()

    kind = value("general.architecture")
    if kind not in ("llama", "gpt2"):
        raise FormatError(
            f"architecture {kind!r}", where=str(path), hint="trafo reads llama and gpt2"
        )
    shape = {
        "vocab_size": value(f"{kind}.vocab_size"),
        "context_length": value(f"{kind}.context_length"),
        "d_model": value(f"{kind}.embedding_length"),
        "num_layers": value(f"{kind}.block_count"),
        "num_heads": value(f"{kind}.attention.head_count"),
        "d_ff": value(f"{kind}.feed_forward_length"),
        "tied_head": tied_head,
    }
    if kind == "gpt2":
        return GPT2Config(**shape, norm_eps=value("gpt2.attention.layer_norm_epsilon"))
    return TransformerLMConfig(
        **shape,
        num_kv_heads=value("llama.attention.head_count_kv"),
        norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=value("llama.rope.freq_base"),
    )
