"""Networks: ids in, logits out. Each takes its own config and knows nothing of text or files."""

from trafo.errors import check_public_types
from trafo.models.base import SequenceModel
from trafo.models.causal_lm import CausalLM, TransformerBlock
from trafo.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from trafo.models.gpt2 import GPT2, GPT2_PRESETS, GPT2Config
from trafo.models.record import record_attention
from trafo.models.recurrent import RecurrentConfig, RecurrentEncoderDecoder
from trafo.models.registry import (
    CONFIGS,
    PRESETS,
    ModelConfig,
    build_model,
    config_from,
    is_builtin,
    model_name,
)
from trafo.models.sentence import pool, sentence_vectors
from trafo.models.transformer_lm import TransformerLM, TransformerLMConfig

__all__ = [
    "CONFIGS",
    "GPT2",
    "GPT2_PRESETS",
    "PRESETS",
    "CausalLM",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "GPT2Config",
    "ModelConfig",
    "RecurrentConfig",
    "RecurrentEncoderDecoder",
    "SequenceModel",
    "TransformerBlock",
    "TransformerLM",
    "TransformerLMConfig",
    "build_model",
    "config_from",
    "is_builtin",
    "model_name",
    "pool",
    "record_attention",
    "sentence_vectors",
]

check_public_types(globals(), __all__)
