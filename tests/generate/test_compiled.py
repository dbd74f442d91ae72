"""The compiled step against the readable model, for every switch and number of rows."""

import pytest
import torch
from tests.weights import shake

from trafo.errors import ConfigError
from trafo.generate import GenerationConfig, generate_ids
from trafo.generate.compiled import CompiledStep
from trafo.generate.decode import decode_one_token
from trafo.models import GPT2, GPT2Config, TransformerLM

SWITCHES = [
    {},
    {"num_kv_heads": 2, "qk_norm": True},
    {"head_size": 6, "qkv_bias": True},
    {"rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_context": 16},
    {"num_kv_heads": 1, "window": 3, "tied_head": True},
    {"norm_placement": "post", "positions": "learned", "feed_forward": "silu"},
    {"norm_placement": "none", "positions": "none", "feed_forward": "relu2"},
    {"norm": "layernorm", "positions": "sinusoidal", "feed_forward": "gelu"},
    {"feed_forward": "relu", "d_ff": 37, "embedding_norm": True},
]


@torch.inference_mode()
def assert_same_steps(model, lengths, num_steps=4):
    """Rows of different lengths; in the second step the first row rests."""
    vocab = model.head_weight.shape[0]
    caches = [model.make_cache(len(lengths)) for _ in range(2)]
    prompt = torch.randint(vocab, (len(lengths), max(lengths)))
    for cache in caches:
        model.hidden_states(prompt, cache=cache, lengths=torch.tensor(lengths))
    step = CompiledStep(model)
    for number in range(num_steps):
        ids = torch.randint(vocab, (len(lengths), 1))
        counts = torch.ones(len(lengths), dtype=torch.long)
        if number == 1:
            counts[0] = 0
        expected = decode_one_token(model, caches[0], ids, counts)
        got = step(caches[1], ids, None if number != 1 else counts)
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)
        assert torch.equal(caches[0].lengths, caches[1].lengths)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_every_switch(switches):
    model = shake(TransformerLM(61, 20, 24, 2, 4, **switches))
    assert_same_steps(model, [5, 1, 9])


@pytest.mark.parametrize("num_rows", [1, 2, 4, 5, 8, 9, 13, 21])
def test_every_number_of_rows(num_rows):
    model = shake(TransformerLM(61, 20, 24, 1, 4))
    assert_same_steps(model, [1 + i % 7 for i in range(num_rows)])


def test_gpt2_with_its_biases():
    config = GPT2Config(vocab_size=61, context_length=20, d_model=24, num_layers=2, num_heads=3)
    assert_same_steps(shake(GPT2(config)), [5, 1, 9])


def test_a_full_row_may_rest():
    model = shake(TransformerLM(61, 8, 24, 1, 4))
    assert_same_steps(model, [8, 1, 3], num_steps=0)
    with torch.inference_mode():
        caches = [model.make_cache(2) for _ in range(2)]
        prompt, counts = torch.randint(61, (2, 8)), torch.tensor([0, 1])
        for cache in caches:
            model.hidden_states(prompt, cache=cache, lengths=torch.tensor([8, 3]))
        ids = torch.tensor([[4], [5]])
        expected = decode_one_token(model, caches[0], ids, counts)
        got = CompiledStep(model)(caches[1], ids, counts)
        torch.testing.assert_close(got[1], expected[1], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(caches[1].keys[..., :8, :], caches[0].keys[..., :8, :])


@pytest.mark.parametrize("switches", SWITCHES[:3], ids=str)
def test_whole_texts_with_samples_and_sliding(tiny, switches):
    model = tiny(context_length=12, **switches)
    results = [
        generate_ids(
            model,
            [[5, 9, 200], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9]],
            GenerationConfig(max_new_tokens=25, num_samples=2, logprobs=0, kernel=kernel),
            end_id=256,
        )
        for kernel in ("readable", "compiled")
    ]
    assert [c.ids for c in results[0]] == [c.ids for c in results[1]]
    for ours, other in zip(*results, strict=True):
        assert ours.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_it_follows_the_weights():
    """The step points at the weights themselves: training goes on, nothing grows stale."""
    model = shake(TransformerLM(61, 8, 24, 1, 4))
    step = CompiledStep(model)
    with torch.inference_mode():
        before = step(model.make_cache(1), torch.tensor([[3]]))
        model.head_weight.mul_(2.0)
        after = step(model.make_cache(1), torch.tensor([[3]]))
    torch.testing.assert_close(after, 2 * before)


def test_several_threads_agree():
    model = shake(TransformerLM(61, 20, 24, 2, 4))
    torch.set_num_threads(2)
    try:
        assert_same_steps(model, [5, 1, 9])
    finally:
        torch.set_num_threads(1)


def test_not_a_number_is_not_hidden():
    model = shake(TransformerLM(61, 8, 24, 1, 4))
    with torch.no_grad():
        model.layers[0].ffn.w1.weight[0, 0] = float("nan")
        assert CompiledStep(model)(model.make_cache(1), torch.tensor([[3]])).isnan().all()


def test_other_numbers_than_float32_are_refused():
    model = TransformerLM(61, 8, 24, 1, 4, dtype=torch.bfloat16).eval()
    with pytest.raises(ConfigError, match="for float32 on the CPU, not"):
        generate_ids(model, [[1]], GenerationConfig(kernel="compiled"))
