"""GGUF files, which llama.cpp runs: metadata, a tokenizer, tensors; written and read back."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from trafo.checkpoint.convert.gguf_tensors import from_gguf_state, to_gguf_state
from trafo.checkpoint.convert.parity import Parity, measure_parity
from trafo.errors import ConfigError, FormatError, MissingPackageError
from trafo.models import GPT2, GPT2Config, TransformerLM, TransformerLMConfig
from trafo.runtime.atomic import atomic_write
from trafo.tokenizer.formats.byte_alphabet import to_printable

Precision = Literal["float32", "float16"]

# llama.cpp's names for the ways of cutting text into words; it knows no others.
_SPLITS = {"gpt2": "gpt-2", "gpt4": "llama-bpe", "llama3": "llama-bpe", "gpt4o": "gpt-4o"}


class BPE(Protocol):
    """What a file needs of a tokenizer, as `trafo.tokenizer.Tokenizer` has it."""

    @property
    def vocab(self) -> dict[int, bytes]: ...
    @property
    def merges(self) -> list[tuple[bytes, bytes]]: ...
    @property
    def special_tokens(self) -> dict[str, int]: ...
    @property
    def pattern(self) -> str: ...


def save_gguf(
    model: TransformerLM | GPT2,
    path: str | Path,
    *,
    tokenizer: BPE | None = None,
    precision: Precision = "float32",
) -> Parity:
    """Write one file for llama.cpp; `<path>.parity.json` says how well it agrees."""
    path = Path(path)
    gguf = _gguf()
    with TemporaryDirectory() as scratch:
        draft = Path(scratch) / "model.gguf"
        writer = gguf.GGUFWriter(draft, "llama" if isinstance(model, TransformerLM) else "gpt2")
        _write_config(writer, model.config)
        _write_tokenizer(writer, gguf, model.config.vocab_size, tokenizer)
        for name, tensor in to_gguf_state(model).items():
            writer.add_tensor(name, _numbers(tensor, precision))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        parity = measure_parity(model, load_gguf(draft), f"gguf-{precision}")
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


def _write_tokenizer(writer: Any, gguf: ModuleType, vocab_size: int, bpe: BPE | None) -> None:
    if bpe is None:
        writer.add_tokenizer_model("no_vocab")
        return
    if bpe.pattern not in _SPLITS:
        raise ConfigError(
            f"llama.cpp does not know the split pattern {bpe.pattern!r}",
            hint="write the file without a tokenizer",
        )
    special = set(bpe.special_tokens.values())
    tokens, kinds = [], []
    for i in range(vocab_size):
        known = bpe.vocab.get(i)
        if known is None:  # the model has room for more ids than the tokenizer uses
            tokens.append(f"[unused {i}]")
            kinds.append(gguf.TokenType.UNUSED)
        else:
            tokens.append(known.decode() if i in special else to_printable(known))
            kinds.append(gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_SPLITS[bpe.pattern])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{to_printable(a)} {to_printable(b)}" for a, b in bpe.merges])
    writer.add_add_bos_token(False)
    end = bpe.special_tokens.get("<|endoftext|>")
    if end is not None:
        writer.add_bos_token_id(end)
        writer.add_eos_token_id(end)


def _numbers(tensor: Tensor, precision: Precision) -> np.ndarray[Any, Any]:
    """Vectors (norms, biases) stay float32: llama.cpp wants them so."""
    dtype = torch.float16 if precision == "float16" and tensor.ndim > 1 else torch.float32
    return tensor.detach().cpu().to(dtype).contiguous().numpy()


def _tensor(gguf: ModuleType, stored: Any, path: str | Path) -> Tensor:
    kinds = gguf.GGMLQuantizationType
    if stored.tensor_type not in (kinds.F32, kinds.F16):
        raise FormatError(
            f"{stored.name} is quantized ({stored.tensor_type.name})",
            where=str(path),
            hint="trafo reads float32 and float16",
        )
    return torch.from_numpy(np.array(stored.data, dtype=np.float32))


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
