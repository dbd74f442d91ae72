"""GGUF files, which llama.cpp runs: metadata, a tokenizer and tensors, in and out.

Biases go out as `llama`, which has them beside any head size and rotary scaling; `qwen2` has not.
"""

from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from trafo.checkpoint.convert.gguf_reader import GGUF, gguf_package
from trafo.checkpoint.convert.gguf_tokenizer import write_gguf_tokenizer
from trafo.checkpoint.convert.hugging_face_config import family_of
from trafo.checkpoint.convert.parity import Parity, save_checked
from trafo.checkpoint.convert.weights import GGUF_GPT2, GGUF_LLAMA, GGUF_QWEN, drop_zero_biases
from trafo.errors import ConfigError, FormatError, require
from trafo.models import GPT2, CausalLM, GPT2Config, TransformerLM, TransformerLMConfig
from trafo.nn.position import rotary_frequencies
from trafo.runtime.console import say
from trafo.tokenizer.tokenizer import Tokenizer

ExportDtype = Literal["float32", "float16", "bfloat16"]

# llama.cpp rotates neighbouring pairs for `llama`, as we do, and halves for Qwen.
_TABLES = {"llama": GGUF_LLAMA, "qwen2": GGUF_QWEN, "qwen3": GGUF_QWEN, "gpt2": GGUF_GPT2}
_ROPE_FREQS = "rope_freqs.weight"
"""what the frequencies of the rotation are divided by, if that is not one number"""
_SIZES = {
    "context_length": "context_length",
    "d_model": "embedding_length",
    "num_layers": "block_count",
    "d_ff": "feed_forward_length",
    "num_heads": "attention.head_count",
    "vocab_size": "vocab_size",
}
"""our names of the sizes, and theirs below the architecture"""
_LLAMA3_ROTATION = {
    "rope_factor": "trafo.rope.factor",
    "rope_low": "trafo.rope.low_freq_factor",
    "rope_high": "trafo.rope.high_freq_factor",
}
"""the settings of Llama 3.1's scaling, of which llama.cpp has only the result, a tensor"""
# What else a file may say about its architecture without changing what is computed.
_HARMLESS = (
    ".rope.scaling.finetuned",
    ".rope.scaling.original_context_length",
    ".tensor_data_layout",
)


def save_gguf(
    model: CausalLM,
    path: str | Path,
    *,
    tokenizer: Tokenizer | None = None,
    dtype: ExportDtype = "float32",
) -> Parity:
    """Write a file for llama.cpp, and how well it agrees to `<path>.parity.json`."""
    gguf = gguf_package()
    if not isinstance(model, TransformerLM | GPT2):
        raise ConfigError(f"llama.cpp has no counterpart of a {type(model).__name__}")

    def write(draft: Path) -> None:
        writer = gguf.GGUFWriter(draft, _architecture_of(model.config))
        _write_config(writer, model.config)
        write_gguf_tokenizer(writer, gguf, model.config.vocab_size, tokenizer)
        for name, tensor in _export_state(model).items():
            kind = _storage(gguf, tensor, dtype)
            numbers = gguf.quants.quantize(tensor.detach().float().cpu().numpy(), kind)
            writer.add_tensor(name, numbers, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return save_checked(model, Path(path), f"gguf-{dtype}", write, load_gguf)


def load_gguf(path: str | Path) -> CausalLM:
    """A model from a GGUF file, dequantised to float32."""
    file = GGUF.open(path)
    config = read_gguf_config(file)
    tensors = {name: torch.from_numpy(numbers) for name, numbers in file.tensors().items()}
    try:
        return _import_model(config, tensors, file.architecture)
    except FormatError as error:
        raise file.refusal(error.what, error.hint) from None


def _architecture_of(config: TransformerLMConfig | GPT2Config) -> str:
    """llama.cpp's name for a model of this config."""
    if isinstance(config, GPT2Config):
        return "gpt2"
    require(config.window is None, f"window is {config.window}, which llama.cpp would ignore")
    if family_of(config) != "qwen3":
        return "llama"
    what = "qk_norm is on with rope_scaling llama3, which no architecture of llama.cpp combines"
    require(config.rope_scaling != "llama3", what, "export a Hugging Face folder instead")
    return "qwen3"


def _export_state(model: TransformerLM | GPT2) -> dict[str, Tensor]:
    tensors = _TABLES[_architecture_of(model.config)].export_state(model)
    if isinstance(model, TransformerLM) and model.config.rope_scaling == "llama3":
        tensors[_ROPE_FREQS] = _divisors(model.config)
    return tensors


def _import_model(
    config: TransformerLMConfig | GPT2Config, tensors: dict[str, Tensor], architecture: str
) -> CausalLM:
    if isinstance(config, TransformerLMConfig):
        if (divisors := tensors.pop(_ROPE_FREQS, None)) is not None:
            config = _with_divisors(config, divisors)
        tensors = drop_zero_biases(tensors, ".attn_output.bias")
    return _TABLES[architecture].import_model(config, tensors)


def _write_config(writer: Any, config: TransformerLMConfig | GPT2Config) -> None:
    sizes = asdict(config) | {"d_ff": config.feed_forward_size}
    for field, key in _SIZES.items():
        writer.add_uint32(f"{writer.arch}.{key}", sizes[field])
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
        for field, key in _LLAMA3_ROTATION.items():
            writer.add_float32(key, getattr(config, field))
    if config.rope_scaling == "linear":
        writer.add_rope_scaling_type(gguf_package().RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_factor)


def _storage(gguf: ModuleType, tensor: Tensor, dtype: ExportDtype) -> Any:
    """Vectors (norms, biases) stay float32: llama.cpp wants them so."""
    kinds = gguf.GGMLQuantizationType
    names = {"float32": kinds.F32, "float16": kinds.F16, "bfloat16": kinds.BF16}
    return names[dtype] if tensor.ndim > 1 else kinds.F32


def read_gguf_config(file: GGUF) -> TransformerLMConfig | GPT2Config:
    """Read our config from the file's fields, which must all be supported."""
    try:
        return _read_config(file)
    except ConfigError as error:  # sizes that do not make a model
        raise file.refusal(error.what, error.hint) from None


def _read_config(file: GGUF) -> TransformerLMConfig | GPT2Config:
    kind = file.architecture
    if kind not in _TABLES:
        raise file.refusal(f"architecture {kind!r}", f"trafo reads {', '.join(_TABLES)}")
    shapes = file.shapes()
    defaults = {"vocab_size": shapes.get("token_embd.weight", (None,))[0]}
    shape: dict[str, Any] = {
        field: file.integer(f"{kind}.{key}", defaults.get(field)) for field, key in _SIZES.items()
    }
    shape["tied_head"] = "output.weight" not in shapes
    if kind == "gpt2":
        shape["norm_eps"] = file.number("gpt2.attention.layer_norm_epsilon", 1e-5)
    else:
        shape |= _read_rotation(file) | {
            "head_size": _read_head_size(file, shape["d_model"], shape["num_heads"]),
            "num_kv_heads": file.integer(f"{kind}.attention.head_count_kv", shape["num_heads"]),
            "norm_eps": file.number(f"{kind}.attention.layer_norm_rms_epsilon", 1e-5),
            "qkv_bias": kind == "qwen2" or "blk.0.attn_q.bias" in shapes,
            "qk_norm": kind == "qwen3",
        }
    if window := file.get(f"{kind}.attention.sliding_window"):
        say(f"{file.path.name}: attention.sliding_window {window} is ignored, as in llama.cpp")
    for key in file.unread(f"{kind}."):
        if not key.endswith(_HARMLESS):
            value = str(file.get(key))[:40]
            raise file.refusal(f"the field {key} is {value}, which trafo does not know")
    return GPT2Config(**shape) if kind == "gpt2" else TransformerLMConfig(**shape)


def _read_head_size(file: GGUF, d_model: int, heads: int) -> int | None:
    """None if it follows from the other sizes."""
    kind, usual = file.architecture, d_model // max(heads, 1)
    size = file.integer(f"{kind}.attention.key_length", usual)
    for key in ("rope.dimension_count", "attention.value_length"):
        if file.integer(f"{kind}.{key}", size) != size:
            raise file.refusal(f"{key} is {file.get(f'{kind}.{key}')}, the head size is {size}")
    return None if size * heads == d_model else size


def _read_rotation(file: GGUF) -> dict[str, Any]:
    """Llama 3.1's scaling is a tensor instead, see `_with_divisors`."""
    kind = file.architecture
    found: dict[str, Any] = {"rope_theta": file.number(f"{kind}.rope.freq_base", 10_000.0)}
    original = file.integer(f"{kind}.rope.scaling.original_context_length", 8192)
    found["rope_original_context"] = original or 8192
    has_factor = file.get(f"{kind}.rope.scaling.factor") is not None
    scaling = file.text(f"{kind}.rope.scaling.type", "linear" if has_factor else "none")
    if scaling == "none":
        usual = TransformerLMConfig()
        numbers = {f: file.number(k, getattr(usual, f)) for f, k in _LLAMA3_ROTATION.items()}
        return found | numbers
    if scaling != "linear":
        raise file.refusal(f"rotary scaling {scaling!r}", "trafo knows none and linear here")
    factor = file.number(f"{kind}.rope.scaling.factor", 1.0)
    return found | {"rope_scaling": "linear", "rope_factor": factor}


def _divisors(config: TransformerLMConfig) -> Tensor:
    frequencies = rotary_frequencies(config.rope_theta, config.d_head)
    assert config.rotary_scaling is not None
    return (frequencies / config.rotary_scaling.apply(frequencies)).float()


def _with_divisors(config: TransformerLMConfig, divisors: Tensor) -> TransformerLMConfig:
    """Others' files hold the result of Llama 3.1's scaling without settings: try the usual ones."""
    factors = [config.rope_factor, divisors.max().item() if divisors.numel() else 0.0]
    for factor in factors if config.rope_scaling == "none" else []:
        if factor <= 0:
            continue
        scaled = replace(config, rope_scaling="llama3", rope_factor=factor)
        expected = _divisors(scaled)
        if expected.shape == divisors.shape and torch.allclose(expected, divisors, rtol=1e-4):
            return scaled
    raise FormatError(
        f"{_ROPE_FREQS} holds a rotary scaling of its own",
        hint="trafo knows linear scaling and that of Llama 3.1",
    )
