"""Hugging Face folders: `config.json` beside `*.safetensors`, in and out."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trafo.checkpoint.convert import gpt2, llama
from trafo.checkpoint.convert.parity import Parity, measure_parity
from trafo.errors import ConfigError, FormatError
from trafo.models import GPT2, CausalLM, TransformerLM
from trafo.runtime.atomic import atomic_folder
from trafo.tokenizer.formats.huggingface import write_huggingface
from trafo.tokenizer.formats.json_files import write_json
from trafo.tokenizer.formats.spec import END_OF_TEXT
from trafo.tokenizer.tokenizer import Tokenizer


def save_hugging_face(
    model: CausalLM,
    folder: str | Path,
    dtype: torch.dtype | None = None,
    *,
    tokenizer: Tokenizer | None = None,
) -> Parity:
    """Write a folder that `transformers` loads; returns (and stores) how well it agrees."""
    config, state = _theirs(model)
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in state.items()}
    config["torch_dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    with atomic_folder(folder, marker="config.json") as new:
        save_file(tensors, new / "model.safetensors", metadata={"format": "pt"})
        if tokenizer is not None:
            config |= _write_tokenizer(tokenizer, new)
        (new / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        parity = measure_parity(model, load_hugging_face(new), "hugging-face")
        parity.write(new / "parity.json")
    return parity


def load_hugging_face(folder: str | Path) -> TransformerLM | GPT2:
    """The model in a folder, by the `model_type` that its config.json names."""
    folder = Path(folder)
    config = _read_config(folder / "config.json")
    kind = config.get("model_type")
    if kind not in ("llama", "gpt2"):
        raise FormatError(
            f"model_type is {kind!r}", where=str(folder), hint="trafo reads llama and gpt2"
        )
    try:
        if kind == "llama":
            return llama.from_llama_state(_read_tensors(folder), llama.from_llama_config(config))
        return gpt2.from_gpt2_state(_read_tensors(folder), gpt2.from_gpt2_config(config))
    except KeyError as error:
        raise FormatError(f"config.json has no {error}", where=str(folder)) from error


def _theirs(model: CausalLM) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if isinstance(model, TransformerLM):
        return llama.to_llama_config(model.config), llama.to_llama_state(model)
    if isinstance(model, GPT2):
        return gpt2.to_gpt2_config(model.config), gpt2.to_gpt2_state(model)
    raise ConfigError(f"a {type(model).__name__} has no counterpart at Hugging Face")


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """The files that `AutoTokenizer` and `generate` ask for; what config.json says of it."""
    write_huggingface(tokenizer.parts, folder / "tokenizer.json")
    about: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    ends = {}
    if END_OF_TEXT in tokenizer.special_tokens:
        about |= dict.fromkeys(("bos_token", "eos_token"), END_OF_TEXT)
        i = tokenizer.special_tokens[END_OF_TEXT]
        ends = dict.fromkeys(("bos_token_id", "eos_token_id"), i)
    write_json(folder / "tokenizer_config.json", about, indent=2)
    write_json(folder / "generation_config.json", ends, indent=2)
    return ends


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FormatError("no config.json here", where=str(path.parent)) from error
    except ValueError as error:
        raise FormatError(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(config, dict):
        raise FormatError("not a JSON object", where=str(path))
    return config


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of all `.safetensors` files; large models are split over several."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FormatError("no .safetensors file here", where=str(folder))
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors.update(load_file(file))
        except SafetensorError as error:
            raise FormatError(f"damaged: {error}", where=str(file)) from error
    return tensors
