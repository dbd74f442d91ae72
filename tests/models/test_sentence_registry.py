import dataclasses
import subprocess
import sys

import pytest
import torch

from trafo.errors import ConfigError
from trafo.models import (
    CONFIGS,
    PRESETS,
    EncoderDecoder,
    EncoderDecoderConfig,
    GPT2Config,
    RecurrentConfig,
    RecurrentEncoderDecoder,
    TransformerLM,
    TransformerLMConfig,
    build_model,
    config_from,
    model_name,
    pool,
    sentence_vectors,
)

STATES = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [100.0, 100.0]], [[2.0, 2.0]] * 3])
REAL = torch.tensor([[True, True, False], [False, False, False]])


@pytest.mark.parametrize(
    ("how", "expected"), [("first", [1.0, -5.0]), ("mean", [2.0, -3.0]), ("max", [3.0, -1.0])]
)
def test_pooling_looks_at_real_positions_only(how, expected):
    assert pool(STATES, REAL, how).tolist() == [expected, [0.0, 0.0]]


def test_first_is_the_first_real_position():
    real = torch.tensor([[False, True, True]])
    assert pool(STATES[:1], real, "first").tolist() == [[3.0, -1.0]]


def small_models():
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    shape = {"d_model": 8, "num_heads": 2, "d_ff": 16}
    return [
        TransformerLM(9, 12, 8, 1, 2),
        EncoderDecoder(EncoderDecoderConfig(**sizes, **layers, **shape)),
        RecurrentEncoderDecoder(RecurrentConfig(**sizes, d_model=8, d_hidden=6)),
    ]


@torch.no_grad()
@pytest.mark.parametrize("how", ["first", "mean", "max"])
@pytest.mark.parametrize("model", small_models(), ids=lambda m: type(m).__name__)
def test_a_sentence_has_the_same_vector_in_any_batch(model, how):
    ids = torch.tensor([[3, 4, 5, 6, 7], [8, 2, 0, 0, 0]])
    together = sentence_vectors(model.eval(), ids, ids != 0, how)
    alone = sentence_vectors(model, ids[1:, :2], torch.ones(1, 2, dtype=torch.bool), how)
    torch.testing.assert_close(together[1:], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_survive_being_saved_as_fields(name):
    config = CONFIGS[name]()
    assert model_name(config) == name
    assert config_from(name, dataclasses.asdict(config)) == config
    assert sum(p.numel() for p in build_model(config, device="meta").parameters()) > 0


def test_presets_are_the_four_gpt2():
    assert list(PRESETS) == ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]


def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(ConfigError, match="unknown model 'bert'; choose one of transformer-lm"):
        config_from("bert", {})
    with pytest.raises(ConfigError, match="unknown model 'gpt-2'; did you mean gpt2"):
        config_from("gpt-2", {})
    with pytest.raises(ConfigError, match="has no field 'width'; choose one of vocab_size"):
        config_from("gpt2", {"width": 3})
    with pytest.raises(ConfigError, match="has no field 'd_modell'; did you mean d_model"):
        config_from("gpt2", {"d_modell": 3})


def test_a_wrong_choice_is_answered_with_the_right_ones():
    """In a process of its own: here the test settings check types before the config can."""
    code = "from trafo.models import TransformerLMConfig as C; C(norm='batchnorm')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ConfigError: norm is 'batchnorm'; choose one of rmsnorm, layernorm" in done.stderr


def test_configs_cannot_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerLMConfig().d_model = 3  # type: ignore[misc]


@pytest.mark.parametrize("config", [TransformerLMConfig, GPT2Config, EncoderDecoderConfig])
@pytest.mark.parametrize("name", ["d_model", "d_ff", "context_length"])
def test_sizes_that_torch_cannot_count_are_refused(config, name):
    with pytest.raises(ConfigError, match=rf"{name} is {2**63}; it must be at most 2\^40"):
        config(**{name: 2**63})
