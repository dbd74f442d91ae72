"""Hugging Face folders: `config.json` beside `*.safetensors`, in and out."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trafo.checkpoint.convert.hugging_face_config import (
    FAMILIES,
    from_gpt2_config,
    from_llama_config,
    to_gpt2_config,
    to_llama_config,
)
from trafo.checkpoint.convert.hugging_face_tokenizer import write_hugging_face_tokenizer
from trafo.checkpoint.convert.parity import Parity, measure_parity
from trafo.checkpoint.convert.weights import (
    HF_GPT2,
    HF_TRANSFORMER_LM,
    drop_zero_biases,
    refuse_second_head,
    widest_dtype,
)
from trafo.checkpoint.snapshot import read_tensors, write_tensors
from trafo.errors import ConfigError, FormatError, TrafoError
from trafo.models import GPT2, CausalLM, GPT2Config, TransformerLM, TransformerLMConfig
from trafo.runtime.atomic import atomic_folder
from trafo.runtime.console import say
from trafo.runtime.json_text import read_json
from trafo.tokenizer.tokenizer import Tokenizer

_OUTPUT_BIAS = ".self_attn.o_proj.bias"  # Llama has it with the others
_SWITCHES = ("tie_word_embeddings", "use_sliding_window")


def save_hugging_face(
    model: CausalLM,
    folder: str | Path,
    dtype: torch.dtype | None = None,
    *,
    tokenizer: Tokenizer | None = None,
) -> Parity:
    """Write a folder that `transformers` loads, and measure how well it agrees."""
    config, state = _export(model)
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in state.items()}
    config["torch_dtype"] = str(widest_dtype(tensors)).removeprefix("torch.")
    with atomic_folder(folder, marker="config.json") as new:
        write_tensors(new / "model.safetensors", tensors, {"format": "pt"})
        if tokenizer is not None:
            config |= write_hugging_face_tokenizer(tokenizer, new)
            if config["model_type"] == "qwen2":
                say("AutoTokenizer takes Qwen2's own: load this one by PreTrainedTokenizerFast")
        (new / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        parity = measure_parity(model, load_hugging_face(new), "hugging-face")
        parity.write(new / "parity.json")
    return parity


def load_hugging_face(folder: str | Path) -> CausalLM:
    """The model in a folder, by the `model_type` that its config.json names."""
    folder = Path(folder)
    config = read_hugging_face_config(folder)
    tensors = _read_tensors(folder)
    try:
        return _import_model(config, tensors)
    except FormatError as error:
        raise FormatError(error.what, where=str(folder), hint=error.hint) from None


def read_hugging_face_config(folder: Path) -> TransformerLMConfig | GPT2Config:
    """Our config from a folder's config.json."""
    where = folder / "config.json"
    theirs = read_json(where)
    kind = theirs.get("model_type")
    for name in _SWITCHES:
        if not isinstance(theirs.get(name, False), bool):
            what = f"{name} is {theirs[name]!r}, expected true or false"
            raise FormatError(what, where=str(where))
    try:
        if kind in FAMILIES:
            return from_llama_config(theirs)
        if kind == "gpt2":
            return from_gpt2_config(theirs)
    except TrafoError as error:
        raise FormatError(error.what, where=str(where), hint=error.hint) from None
    except KeyError as error:
        raise FormatError(f"has no {error}", where=str(where)) from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FormatError(f"does not describe a model: {error}", where=str(where)) from None
    hint = f"trafo reads {', '.join(FAMILIES)} and gpt2"
    raise FormatError(f"model_type is {kind!r}", where=str(where), hint=hint)


def _export(model: CausalLM) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What goes into config.json, and the tensors."""
    if isinstance(model, GPT2):
        return to_gpt2_config(model.config), HF_GPT2.export_state(model)
    if not isinstance(model, TransformerLM):
        raise ConfigError(f"a {type(model).__name__} has no counterpart at Hugging Face")
    config, state = to_llama_config(model.config), HF_TRANSFORMER_LM.export_state(model)
    if config["attention_bias"] and config["model_type"] == "llama":  # it has one more bias
        zeros = torch.zeros_like(state["model.norm.weight"])
        layers = range(model.config.num_layers)
        state |= {f"model.layers.{i}{_OUTPUT_BIAS}": zeros.clone() for i in layers}
    return config, state


def _import_model(config: TransformerLMConfig | GPT2Config, tensors: dict[str, Tensor]) -> CausalLM:
    """Tensors that follow from the others may be in the file, too."""
    if isinstance(config, GPT2Config):  # older files leave out the prefix
        tensors = {
            name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}": tensor
            for name, tensor in tensors.items()
        }
        table, harmless = HF_GPT2, [".attn.bias", ".attn.masked_bias"]  # the causal masks
    else:
        table, harmless = HF_TRANSFORMER_LM, ["rotary_emb.inv_freq"]
        tensors = drop_zero_biases(tensors, _OUTPUT_BIAS) if config.qkv_bias else tensors
    if not config.tied_head:
        return table.import_model(config, tensors, tuple(harmless))
    model = table.import_model(config, tensors, (*harmless, "lm_head.weight"))
    refuse_second_head(tensors, table.name("token_embeddings.weight"))
    return model


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read by the index if there is one, else `model.safetensors`, else all there are."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _read_indexed(folder, index)
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        hint = "trafo does not read PyTorch's .bin files, which may hold code"
        raise FormatError("no .safetensors file here", where=str(folder), hint=hint)
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors.update(read_tensors(file))
    return tensors


def _read_indexed(folder: Path, index: Path) -> dict[str, Tensor]:
    """Read each tensor of a split model from the file that the index names for it."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise FormatError("names no files", where=str(index))
    names_in: dict[str, list[str]] = {}
    for tensor, name in table.items():
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise FormatError(f"names {name!r}, which is not here", where=str(index))
        names_in.setdefault(name, []).append(tensor)
    tensors: dict[str, Tensor] = {}
    for name, wanted in names_in.items():
        stored = read_tensors(folder / name)
        if missing := sorted(set(wanted) - set(stored)):
            what = f"says that {missing[0]!r} is in {name}, where it is not"
            raise FormatError(what, where=str(index))
        tensors |= {tensor: stored[tensor] for tensor in wanted}
    return tensors
