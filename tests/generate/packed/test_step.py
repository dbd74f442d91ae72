"""The packed step against the readable one, for every switch and kind of weights."""

import copy

import numpy as np
import pytest
import torch
from tests.weights import shake

from trafo.errors import ConfigError
from trafo.generate.engine.cache import PagedCache, StepBatch
from trafo.generate.engine.readable_step import ReadableStep
from trafo.generate.packed.pack import quantize
from trafo.generate.packed.step import PackedStep
from trafo.models import GPT2, GPT2Config, TransformerLM

SWITCHES = [
    {},
    {"num_kv_heads": 2, "qk_norm": True},
    {"head_size": 6, "qkv_bias": True},
    {"head_size": 20},
    {"rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_context": 16},
    {"num_kv_heads": 1, "window": 3, "tied_head": True},
    {"norm_placement": "post", "positions": "learned", "feed_forward": "silu"},
    {"norm_placement": "none", "positions": "none", "feed_forward": "relu2"},
    {"norm": "layernorm", "positions": "sinusoidal", "feed_forward": "gelu"},
    {"feed_forward": "relu", "d_ff": 37, "embedding_norm": True},
]


def batches(counts, num_steps, vocab=61):
    """Rows with these numbers of tokens, then one more token each, and every second row three."""
    rng = np.random.default_rng(0)
    per_row = 3
    tables = rng.permutation(len(counts) * per_row).reshape(len(counts), per_row).astype(np.int64)
    have = [0] * len(counts)
    for number in range(num_steps):
        adds = counts if number == 0 else [3 if row % 2 else 1 for row in range(len(counts))]
        rows = np.repeat(np.arange(len(counts)), adds)
        positions = np.concatenate([np.arange(a) + h for a, h in zip(adds, have, strict=True)])
        ids = rng.integers(vocab, size=len(rows))
        have = [a + h for a, h in zip(adds, have, strict=True)]
        yield StepBatch(ids, positions, rows, tables, np.cumsum(adds) - 1)


def assert_same(model, ours, counts, *, num_steps=3, atol=3e-5):
    caches = [PagedCache(model, 3 * len(counts)) for _ in range(2)]
    step = ReadableStep(model)
    for batch in batches(counts, num_steps, model.head_weight.shape[0]):
        expected = step(batch, caches[0])
        torch.testing.assert_close(ours(batch, caches[1]), expected, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_every_switch(switches):
    model = shake(TransformerLM(61, 48, 24, 2, 4, **switches))
    assert_same(model, PackedStep(model), [5, 1, 39])


def test_gpt2_with_its_biases():
    config = GPT2Config(vocab_size=61, context_length=48, d_model=24, num_layers=2, num_heads=3)
    model = shake(GPT2(config))
    assert_same(model, PackedStep(model), [5, 1, 18])


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 6, 8, 11])
def test_other_rows_change_no_bit(weights, num_rows):
    model = shake(TransformerLM(61, 48, 24, 2, 4))
    step = PackedStep(model, weights)
    together = [
        step(batch, cache)
        for cache in [PagedCache(model, 33)]
        for batch in batches([1 + 3 * i for i in range(num_rows)], 3)
    ]
    for row in range(num_rows):
        cache = PagedCache(model, 33)
        for number, batch in enumerate(batches([1 + 3 * i for i in range(num_rows)], 3)):
            own = batch.rows == row
            alone = StepBatch(
                batch.ids[own],
                batch.positions[own],
                np.zeros(own.sum(), np.int64),
                batch.tables[row : row + 1],
                np.array([own.sum() - 1]),
            )
            assert torch.equal(step(alone, cache)[0], together[number][row])


def test_int8_is_the_readable_model_with_rounded_weights():
    model = shake(TransformerLM(61, 48, 24, 2, 4, num_kv_heads=2))
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in rounded.named_parameters():
            if weight.ndim == 2 and "embedding" not in name:
                small, scales = quantize(weight)
                weight.copy_(small * scales[:, None])
    assert_same(rounded, PackedStep(model, "int8"), [5, 1, 18], atol=2e-4)


def test_rounding_to_int8_errs_by_half_a_step_at_most():
    weight = torch.randn(7, 50)
    weight[3] = 0.0
    small, scales = quantize(weight)
    assert small.dtype == torch.int8
    assert ((small * scales[:, None] - weight).abs() <= scales[:, None] * 0.5001).all()
    assert small.abs().amax(1).tolist() == [127, 127, 127, 0, 127, 127, 127]


def test_several_threads_agree():
    model = shake(TransformerLM(61, 48, 24, 2, 4))
    step = PackedStep(model)
    step.num_threads = 2
    assert_same(model, step, [5, 1, 18])


def test_not_a_number_is_not_hidden():
    for place in ("ffn.w1", "attn.q_proj", "attn.v_proj"):
        model = shake(TransformerLM(61, 48, 24, 1, 4))
        with torch.no_grad():
            model.get_submodule(f"layers.0.{place}").weight[0, 0] = float("nan")
        (batch,) = batches([3], 1)
        assert PackedStep(model)(batch, PagedCache(model, 3)).isnan().all()


def test_other_numbers_than_float32_are_refused():
    model = TransformerLM(61, 8, 24, 1, 4, dtype=torch.bfloat16).eval()
    with pytest.raises(ConfigError, match="in float32 on the CPU, not"):
        PackedStep(model)
