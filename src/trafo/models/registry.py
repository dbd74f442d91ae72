"""Models by name: what a config file calls them, and which config each one takes."""

from collections.abc import Callable
from typing import Any

from torch.nn import Module

from trafo.errors import ConfigError, did_you_mean
from trafo.models.base import SequenceModel
from trafo.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from trafo.models.gpt2 import GPT2, GPT2_PRESETS, GPT2Config
from trafo.models.recurrent import RecurrentConfig, RecurrentEncoderDecoder
from trafo.models.transformer_lm import TransformerLM, TransformerLMConfig
from trafo.nn.precision import Device, Dtype

ModelConfig = TransformerLMConfig | GPT2Config | EncoderDecoderConfig | RecurrentConfig

CONFIGS: dict[str, type[ModelConfig]] = {
    "transformer-lm": TransformerLMConfig,
    "gpt2": GPT2Config,
    "encoder-decoder": EncoderDecoderConfig,
    "recurrent": RecurrentConfig,
}

PRESETS: dict[str, ModelConfig] = {**GPT2_PRESETS}

_MODELS: dict[type, Callable[..., SequenceModel]] = {
    TransformerLMConfig: TransformerLM.from_config,
    GPT2Config: GPT2,
    EncoderDecoderConfig: EncoderDecoder,
    RecurrentConfig: RecurrentEncoderDecoder,
}


def build_model(config: ModelConfig, device: Device = None, dtype: Dtype = None) -> SequenceModel:
    """The model that this config describes, with fresh weights."""
    return _MODELS[type(config)](config, device=device, dtype=dtype)


def is_builtin(model: Module) -> bool:
    """Whether kernels and other programs' formats know what it computes: not a user's subclass."""
    return type(model).__module__.startswith("trafo.")


def model_name(config: ModelConfig) -> str:
    """The name under which `config_from` finds this kind of config again."""
    return next(name for name, kind in CONFIGS.items() if kind is type(config))


def config_from(name: str, fields: dict[str, Any]) -> ModelConfig:
    """A config from its model's name and its fields, as a saved run holds them."""
    if name not in CONFIGS:
        raise ConfigError(f"unknown model {name!r}", hint=did_you_mean(name, CONFIGS))
    kind = CONFIGS[name]
    unknown = sorted(set(fields) - set(kind.__dataclass_fields__))
    if unknown:
        hint = did_you_mean(unknown[0], kind.__dataclass_fields__)
        raise ConfigError(f"{name} has no field {unknown[0]!r}", hint=hint)
    return kind(**fields)
