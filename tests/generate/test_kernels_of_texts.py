"""Batches by the engine's compiled kernels against batches by the model itself."""

import pytest
import torch

from trafo.errors import ConfigError
from trafo.generate import GenerationConfig, generate_ids
from trafo.generate.config import EngineConfig
from trafo.generate.engine import build
from trafo.generate.engine.build import uses_kernels
from trafo.models import TransformerLM

PROMPTS = [[5, 9, 200], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9]]


@pytest.mark.parametrize("switches", [{}, {"num_kv_heads": 2, "qk_norm": True}], ids=str)
def test_whole_texts_with_samples_and_sliding(tiny, switches):
    model = tiny(context_length=12, **switches)
    results = [
        generate_ids(
            model,
            PROMPTS,
            GenerationConfig(max_new_tokens=25, num_samples=2, logprobs=0, kernel=kernel),
            end_id=256,
        )
        for kernel in ("readable", "compiled")
    ]
    assert [c.ids for c in results[0]] == [c.ids for c in results[1]]
    assert [c.finish_reason for c in results[0]] == [c.finish_reason for c in results[1]]
    for ours, other in zip(*results, strict=True):
        assert ours.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("kernel", ["readable", "compiled"])
def test_nothing_to_do(tiny, kernel):
    config = GenerationConfig(max_new_tokens=0, kernel=kernel)
    (done,) = generate_ids(tiny(), [[1]], config)
    assert (done.ids, done.finish_reason) == ([], "length")
    assert generate_ids(tiny(), [], config) == []


def test_weights_that_changed_count(tiny):
    model = tiny()
    config = GenerationConfig(max_new_tokens=1, logprobs=257, kernel="compiled", temperature=0.0)
    for _ in range(2):
        ((token,),) = (done.tokens for done in generate_ids(model, [[3, 4]], config))
        with torch.no_grad():
            expected = model(torch.tensor([[3, 4]]))[0, -1].log_softmax(-1)
            assert token.logprob == pytest.approx(expected.max().item(), abs=1e-4)
            model.head_weight.mul_(2.0)


def test_auto_compiles_where_it_can(tiny, monkeypatch):
    auto = EngineConfig()
    half = TransformerLM(61, 8, 24, 1, 4, dtype=torch.bfloat16).eval()
    assert uses_kernels(tiny(), auto)
    assert not uses_kernels(tiny(), EngineConfig(kernel="readable"))
    assert not uses_kernels(half, auto)
    monkeypatch.setattr(build, "available_memory", lambda: 10_000)
    assert not uses_kernels(tiny(), auto), "a copy of the weights does not fit"


def test_other_numbers_than_float32_are_refused():
    model = TransformerLM(61, 8, 24, 1, 4, dtype=torch.bfloat16).eval()
    with pytest.raises(ConfigError, match="in float32 on the CPU, not"):
        generate_ids(model, [[1]], GenerationConfig(kernel="compiled"))
