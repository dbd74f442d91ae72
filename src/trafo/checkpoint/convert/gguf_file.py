"""GGUF files, which llama.cpp runs: metadata, a tokenizer, tensors; written and read back."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from trafo.checkpoint.convert.gguf_reader import GGUF, gguf_package
from trafo.checkpoint.convert.gguf_tensors import architecture_of, from_gguf_state, to_gguf_state
from trafo.checkpoint.convert.gguf_tokenizer import write_tokenizer
from trafo.checkpoint.convert.parity import Parity, measure_parity
from trafo.errors import ConfigError, FormatError
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
    gguf = gguf_package()
    if not isinstance(model, TransformerLM | GPT2):
        raise ConfigError(f"llama.cpp has no counterpart of a {type(model).__name__}")
    with TemporaryDirectory() as scratch:
        draft = Path(scratch) / "model.gguf"
        writer = gguf.GGUFWriter(draft, architecture_of(model.config))
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


def load_gguf(path: str | Path) -> CausalLM:
    """A model from a GGUF file, dequantised to float32."""
    file = GGUF.open(path)
    config = read_gguf_config(file)
    tensors = {name: torch.from_numpy(numbers) for name, numbers in file.tensors().items()}
    try:
        return from_gguf_state(tensors, config)
    except FormatError as error:
        raise file.refusal(error.what, error.hint) from None


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
    writer.add_key_length(config.d_head)
    writer.add_value_length(config.d_head)
    if config.rope_scaling == "llama3":
        writer.add_rope_scaling_orig_ctx_len(config.rope_original_context)
    if config.rope_scaling == "linear":
        writer.add_rope_scaling_type(gguf_package().RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_factor)


def _storage(gguf: ModuleType, tensor: Tensor, dtype: Dtype) -> Any:
    """Vectors (norms, biases) stay float32: llama.cpp wants them so."""
    kinds = gguf.GGMLQuantizationType
    names = {"float32": kinds.F32, "float16": kinds.F16, "bfloat16": kinds.BF16}
    return names[dtype] if tensor.ndim > 1 else kinds.F32


_ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2")

# What else a file may say about its architecture without changing what is computed.
_HARMLESS = (
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "tensor_data_layout",
)


def read_gguf_config(file: GGUF) -> TransformerLMConfig | GPT2Config:
    """Our config from the file's fields; unsupported fields are an error."""
    try:
        return _read_config(file)
    except ConfigError as error:  # sizes that do not make a model
        raise file.refusal(error.what, error.hint) from None


def _read_config(file: GGUF) -> TransformerLMConfig | GPT2Config:
    kind = file.architecture
    if kind not in _ARCHITECTURES:
        raise file.refusal(f"architecture {kind!r}", f"trafo reads {', '.join(_ARCHITECTURES)}")
    shape: dict[str, Any] = {
        "vocab_size": file.integer(f"{kind}.vocab_size", _rows(file, "token_embd.weight")),
        "context_length": file.integer(f"{kind}.context_length"),
        "d_model": file.integer(f"{kind}.embedding_length"),
        "num_layers": file.integer(f"{kind}.block_count"),
        "num_heads": file.integer(f"{kind}.attention.head_count"),
        "d_ff": file.integer(f"{kind}.feed_forward_length"),
        "tied_head": "output.weight" not in file.shapes(),
    }
    known = {"vocab_size", "context_length", "embedding_length", "block_count"}
    known |= {"feed_forward_length", "attention.head_count", *_HARMLESS}
    if kind == "gpt2":
        _refuse_fields(file, known | {"attention.layer_norm_epsilon"})
        eps = file.number("gpt2.attention.layer_norm_epsilon", 1e-5)
        return GPT2Config(**shape, norm_eps=eps)
    known |= {"attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.freq_base"}
    known |= {"attention.key_length", "attention.value_length", "rope.dimension_count"}
    known |= {"rope.scaling.type", "rope.scaling.factor", "attention.sliding_window"}
    _refuse_fields(file, known)
    return TransformerLMConfig(
        **shape,
        **_read_rotation(file),
        head_size=_read_head_size(file, shape["d_model"], shape["num_heads"]),
        num_kv_heads=file.integer(f"{kind}.attention.head_count_kv", shape["num_heads"]),
        norm_eps=file.number(f"{kind}.attention.layer_norm_rms_epsilon", 1e-5),
        window=file.integer(f"{kind}.attention.sliding_window", 0) or None,
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
    )


def _read_head_size(file: GGUF, d_model: int, heads: int) -> int | None:
    """None if it follows from the other sizes."""
    kind, usual = file.architecture, d_model // max(heads, 1)
    size = file.integer(f"{kind}.attention.key_length", usual)
    for key in ("rope.dimension_count", "attention.value_length"):
        if file.integer(f"{kind}.{key}", size) != size:
            raise file.refusal(f"{key} is {file.get(f'{kind}.{key}')}, the head size is {size}")
    return None if size * heads == d_model else size


def _read_rotation(file: GGUF) -> dict[str, Any]:
    """Llama 3.1's scaling is a tensor instead, see `gguf_tensors`."""
    kind = file.architecture
    found: dict[str, Any] = {"rope_theta": file.number(f"{kind}.rope.freq_base", 10_000.0)}
    original = file.integer(f"{kind}.rope.scaling.original_context_length", 8192)
    found["rope_original_context"] = original or 8192
    has_factor = file.get(f"{kind}.rope.scaling.factor") is not None
    scaling = file.text(f"{kind}.rope.scaling.type", "linear" if has_factor else "none")
    if scaling == "none":
        return found
    if scaling != "linear":
        raise file.refusal(f"rotary scaling {scaling!r}", "trafo knows none and linear here")
    factor = file.number(f"{kind}.rope.scaling.factor", 1.0)
    return found | {"rope_scaling": "linear", "rope_factor": factor}


def _refuse_fields(file: GGUF, known: set[str]) -> None:
    prefix = file.architecture + "."
    for key in file.keys(prefix):
        if key.removeprefix(prefix) not in known:
            value = str(file.get(key))[:40]
            raise file.refusal(f"the field {key} is {value}, which trafo does not know")


def _rows(file: GGUF, name: str) -> int | None:
    return file.shapes().get(name, (None,))[0]
