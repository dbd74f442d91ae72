"""The cache, the batch and the sliding window against one row at a time without any of them."""

import pytest
import torch

from trafo.errors import ConfigError, InputError
from trafo.generate import GenerationConfig, generate_ids
from trafo.generate.reference import generate_tokens
from trafo.generate.request import window_start
from trafo.models import GPT2, GPT2Config

PROMPTS = [[5, 9, 200], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9], [11, 12, 13, 14]]
GREEDY = GenerationConfig(max_new_tokens=6, temperature=0.0)


def assert_like_reference(model, prompts, config, end_id=None):
    completions = generate_ids(model, prompts, config, end_id=end_id)
    assert len(completions) == len(prompts) * config.num_samples
    for done in completions:
        slow = generate_tokens(
            model, prompts[done.prompt], config, sample_index=done.sample, end_id=end_id
        )
        assert done.ids == [token.id for token in slow]
        expected = [token.logprob for token in slow if token.logprob is not None]
        assert done.logprobs == pytest.approx(expected, abs=1e-4)
    return completions


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"num_kv_heads": 2, "qk_norm": True},
        {"window": 5},
        {"positions": "learned", "norm_placement": "post", "tied_head": True},
        {"positions": "sinusoidal", "norm": "layernorm", "feed_forward": "gelu"},
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_mixed_lengths_and_sliding_equal_the_reference(tiny, switches, temperature):
    """Rows reach the context of 10 at different steps and slide twice."""
    config = GenerationConfig(max_new_tokens=20, temperature=temperature, logprobs=0)
    assert_like_reference(tiny(context_length=10, **switches), PROMPTS, config)


@pytest.mark.parametrize("kept_share", [0.01, 0.3, 1.0])
def test_any_share_of_the_window_may_be_kept(tiny, kept_share):
    config = GenerationConfig(max_new_tokens=12, kept_share=kept_share)
    assert_like_reference(tiny(context_length=8), PROMPTS, config)


def test_gpt2_slides_too():
    config = GPT2Config(vocab_size=50, context_length=12, d_model=16, num_layers=2, num_heads=2)
    model = GPT2(config).eval()
    assert_like_reference(model, [[1, 2, 3], [4] * 11], GenerationConfig(max_new_tokens=14))


def test_prompts_longer_than_the_context(tiny):
    prompts = [list(range(length)) for length in (16, 17, 30, 3)]
    assert_like_reference(tiny(), prompts, GenerationConfig(max_new_tokens=12))


@pytest.mark.parametrize(
    "shape",
    [
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"repetition_penalty": 1.5},
        {"temperature": 0.0, "repetition_penalty": 3.0},
    ],
)
def test_every_setting_with_samples_and_ends(tiny, shape):
    """An end id that is often drawn, so that rows leave the batch one by one."""
    model = tiny()
    with torch.no_grad():
        model.head_weight[256] *= 3.0
    config = GenerationConfig(max_new_tokens=12, num_samples=2, seed=4, **shape)
    done = assert_like_reference(model, PROMPTS, config, end_id=256)
    assert [(c.prompt, c.sample) for c in done] == [(i, j) for i in range(4) for j in range(2)]


def test_rows_end_at_different_times(tiny):
    model = tiny()
    with torch.no_grad():
        model.head_weight[256] *= 2.0
    config = GenerationConfig(max_new_tokens=16, num_samples=6, seed=1)
    done = generate_ids(model, PROMPTS, config, end_id=256)
    assert {c.finish_reason for c in done} == {"end", "length"}
    assert len({len(c.ids) for c in done}) > 3


def test_a_row_does_not_depend_on_the_others(tiny):
    model = tiny()
    config = GenerationConfig(max_new_tokens=20, num_samples=2, seed=3)
    together = generate_ids(model, PROMPTS, config)
    for i, prompt in enumerate(PROMPTS):
        alone = generate_ids(model, [prompt], config)
        assert [c.ids for c in together[2 * i : 2 * i + 2]] == [c.ids for c in alone]


def test_seeds_and_samples_differ_and_repeat(tiny):
    model = tiny()
    results = [
        [
            c.ids
            for c in generate_ids(
                model, [[1]], GenerationConfig(seed=seed, num_samples=2, max_new_tokens=9)
            )
        ]
        for seed in (0, 0, 1)
    ]
    assert results[0] == results[1]
    assert len({tuple(ids) for ids in results[0] + results[2]}) == 4


def test_going_on_from_a_text_is_like_not_stopping(tiny):
    model = tiny()
    whole = generate_ids(model, [[3]], GenerationConfig(max_new_tokens=40, temperature=0.0))[0].ids
    rest = GenerationConfig(max_new_tokens=15, temperature=0.0)
    assert generate_ids(model, [[3, *whole[:25]]], rest)[0].ids == whole[25:]


def test_the_window_grows_from_kept_to_full_and_starts_again():
    lengths = [n - window_start(n, 10, 0.4) for n in range(1, 30)]
    assert lengths[:10] == list(range(1, 11))
    assert lengths[10:] == (list(range(4, 11)) * 3)[: 29 - 10]
    assert [11 - window_start(11, 10, share) for share in (0.01, 0.55, 1.0)] == [1, 5, 10]


def test_greedy_is_hugging_faces(tmp_path, tiny):
    transformers = pytest.importorskip("transformers")
    from trafo.checkpoint.convert.hugging_face import save_hugging_face

    model = tiny(context_length=40, num_kv_heads=2)
    save_hugging_face(model, tmp_path / "out")
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    for prompt in PROMPTS:
        for penalty in (1.0, 1.4):
            config = GenerationConfig(
                max_new_tokens=25, temperature=0.0, repetition_penalty=penalty
            )
            ours = generate_ids(model, [prompt], config)[0].ids
            expected = theirs.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=25,
                min_new_tokens=25,
                do_sample=False,
                repetition_penalty=penalty,
                pad_token_id=0,
                eos_token_id=None,
            )
            assert ours == expected[0, len(prompt) :].tolist()


def test_nothing_asked_for_is_nothing_done(tiny):
    config = GenerationConfig(max_new_tokens=0)
    assert [c.ids for c in generate_ids(tiny(), [[1], [2]], config)] == [[], []]
    assert generate_ids(tiny(), [], GREEDY) == []


def test_the_model_goes_back_to_training(tiny):
    model = tiny(dropout=0.5).train()
    first, second = (generate_ids(model, [[1]], GREEDY)[0].ids for _ in range(2))
    assert first == second
    assert model.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    model(torch.tensor([[1]])).sum().backward()  # the weights can still learn


def test_prompts_that_cannot_be(tiny):
    with pytest.raises(InputError, match="a prompt has no ids"):
        generate_ids(tiny(), [[]], GREEDY)
    with pytest.raises(InputError, match="the id 257, the model knows ids from 0 to 256"):
        generate_ids(tiny(), [[1, 257]], GREEDY)
    with pytest.raises(ConfigError, match="stop strings are for text"):
        generate_ids(tiny(), [[1]], GenerationConfig(stop=("x",)))
