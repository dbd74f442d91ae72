"""Parameters against the real modules."""

import pytest
from torch.nn import Module

from trafo.account import Workload, account
from trafo.models import GPT2_PRESETS, TransformerLMConfig, build_model

# What the released checkpoints hold (Hugging Face `gpt2`, `gpt2-medium`, ...).
GPT2_PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


def test_all_parameters_of_the_model_are_counted_in_its_parts(config):
    result = account(config, Workload(seq=40))
    assert result.parameters == count(build_model(config, device="meta"))
    assert sum(part.parameters for part in result.parts) == result.parameters


def count(model: Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_parameters_are_the_same_in_every_phase(config, phase):
    trained = account(config, Workload(seq=40)).parameters
    assert account(config, Workload(seq=40, phase=phase)).parameters == trained


@pytest.mark.parametrize("name", GPT2_PRESETS)
def test_the_four_gpt2_sizes(name):
    config = GPT2_PRESETS[name]
    result = account(config, Workload(seq=1024))
    assert result.parameters == GPT2_PARAMETERS[name]


def test_the_known_answer_for_gpt2_xls_shape():
    config = TransformerLMConfig(
        vocab_size=50_257,
        context_length=1024,
        d_model=1600,
        num_layers=48,
        num_heads=25,
        d_ff=6400,
    )
    parameters = account(config, Workload(seq=1024)).parameters
    assert parameters == 2_127_057_600
    assert f"{4 * parameters / 1e9:.2f}" == "8.51"
