"""Every model and switch, small; and torch's own counts to hold the account to."""

from typing import Any

import pytest
from tests.switches import ONE_SWITCH_EACH

from trafo.models import EncoderDecoderConfig, GPT2Config, RecurrentConfig, TransformerLMConfig

LM_SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "context_length": 48,
    "d_model": 32,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 56,
}
LM_SWITCHES: list[dict[str, Any]] = [
    *ONE_SWITCH_EACH,
    {"num_kv_heads": 2},
    {"qk_norm": True, "num_kv_heads": 1},
    {"qkv_bias": True, "head_size": 10, "num_kv_heads": 2},
    {"rope_scaling": "llama3", "rope_factor": 8.0},
    {"window": 16},
    {"window": 15, "num_kv_heads": 2},
    {"window": 100},
    {"dropout": 0.1},
    {"dropout": 0.1, "window": 16},
    {"d_ff": None},
    {"embedding_norm": True},
    {"embedding_norm": True, "norm": "layernorm", "norm_placement": "none"},
    {"embedding_std": 0.02, "zero_init_outputs": True, "head_std": 0.0},
]
GPT2_SWITCHES: list[dict[str, Any]] = [{}, {"tied_head": False}, {"dropout": 0.1}]
PAIR_SHAPE: dict[str, Any] = {"source_vocab_size": 89, "target_vocab_size": 89, "d_model": 32}
ENCODER_DECODER_SHAPE: dict[str, Any] = {
    "context_length": 48,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "d_ff": 56,
}
ENCODER_DECODER_SWITCHES: list[dict[str, Any]] = [
    {"dropout": 0.0},
    {"attention_dropout": 0.1},
    {},
    {"norm_placement": "pre", "activation": "gelu"},
    {"final_norms": False, "attention_bias": True},
    {"shared_embeddings": "target"},
    {"shared_embeddings": "all", "dropout": 0.0},
    {"head_bias": True, "target_vocab_size": 71},
]
RECURRENT_SWITCHES: list[dict[str, Any]] = [{"dropout": 0.0}, {"d_hidden": 24}]

ALL_CONFIGS = [
    *(TransformerLMConfig(**LM_SHAPE | switches) for switches in LM_SWITCHES),
    *(GPT2Config(**LM_SHAPE | switches) for switches in GPT2_SWITCHES),
    *(
        EncoderDecoderConfig(**PAIR_SHAPE | ENCODER_DECODER_SHAPE | switches)
        for switches in ENCODER_DECODER_SWITCHES
    ),
    *(RecurrentConfig(**PAIR_SHAPE | {"d_hidden": 40} | s) for s in RECURRENT_SWITCHES),
]


def _name(config: Any) -> str:
    """The model, and the fields in which it differs from the plain one of its kind."""
    plain = next(other for other in ALL_CONFIGS if type(other) is type(config))
    fields = {name: getattr(config, name) for name in type(config).__dataclass_fields__}
    changed = [f"{k}={v}" for k, v in fields.items() if v != getattr(plain, k)]
    return "-".join([type(config).__name__.removesuffix("Config"), *changed])


@pytest.fixture(params=ALL_CONFIGS, ids=_name)
def config(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[c for c in ALL_CONFIGS if hasattr(c, "vocab_size")], ids=_name)
def language_model(request: pytest.FixtureRequest) -> Any:
    return request.param
