"""What holds for every decoder-only model and every switch."""

import math

import pytest
import torch
from tests.switches import ONE_SWITCH_EACH

from trafo.errors import ConfigError, InputError
from trafo.fast import accelerate
from trafo.models import (
    GPT2,
    GPT2_PRESETS,
    GPT2Config,
    TransformerLM,
    TransformerLMConfig,
    record_attention,
)
from trafo.optim import cross_entropy

SHAPE = {
    "vocab_size": 17,
    "context_length": 12,
    "d_model": 16,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 24,
}
SWITCHES = [
    *ONE_SWITCH_EACH,
    {"num_kv_heads": 1},
    {"num_kv_heads": 2, "qk_norm": True},
    {"head_size": 6, "qkv_bias": True},
    {"rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_context": 16},
    {"window": 3},
    {"window": 4, "num_kv_heads": 2},
    {"embedding_norm": True, "positions": "learned"},
    {"embedding_norm": True, "norm_placement": "none"},
    {"embedding_std": 0.02, "head_std": 0.02},
]


def name(switches):
    return "-".join(f"{key}={value}" for key, value in switches.items()) or "plain"


@pytest.fixture(params=[*SWITCHES, "gpt2"], ids=lambda p: p if isinstance(p, str) else name(p))
def model(request):
    if request.param == "gpt2":
        return GPT2(GPT2Config(**SHAPE)).eval()
    return TransformerLM(**SHAPE, rope_theta=100.0, **request.param).eval()


def test_logits_have_the_right_shape_and_every_parameter_learns(model):
    logits = model(torch.randint(17, (3, 12)))
    assert logits.shape == (3, 12, 17)
    logits.square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@torch.no_grad()
def test_no_position_sees_the_future(model):
    ids = torch.randint(17, (2, 12))
    changed = ids.clone()
    changed[:, 7:] = (ids[:, 7:] + 1) % 17
    assert torch.equal(model(ids)[:, :7], model(changed)[:, :7])
    assert not torch.allclose(model(ids)[:, 7:], model(changed)[:, 7:])


@torch.no_grad()
def test_padding_does_not_change_real_tokens(model):
    ids = torch.randint(17, (2, 12))
    alone = model(ids[:, :5])
    torch.testing.assert_close(model(ids)[:, :5], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_cached_equals_uncached(model):
    ids = torch.randint(17, (2, 12))
    cache = model.make_cache(2)
    pieces = [model(piece, cache=cache) for piece in ids.split([4, 1, 3, 1, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(ids), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_cached_equals_uncached_for_rows_of_different_lengths(model):
    ids = torch.randint(17, (3, 12))
    whole = model(ids)
    lengths, rows = torch.tensor([2, 6, 5]), torch.arange(3)
    cache = model.make_cache(3)
    prompt = ids[:, :6].clone()
    prompt[0, 2:] = 0  # padding, never to be seen
    prompt[2, 5:] = 0
    first = model(prompt, cache=cache, lengths=lengths)
    torch.testing.assert_close(
        first[rows, lengths - 1], whole[rows, lengths - 1], atol=1e-5, rtol=1e-5
    )
    for _ in range(6):
        at = cache.lengths.clone()
        out = model(ids[rows, at][:, None], cache=cache)
        torch.testing.assert_close(out[:, 0], whole[rows, at], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_attention_weights_are_recorded_from_outside(model):
    ids = torch.randint(17, (2, 9))
    with record_attention(model) as weights:
        model(ids)
        accelerate(model)(ids)
    assert list(weights) == ["layers.0.attn", "layers.1.attn"]
    for readable, fast in weights.values():
        assert readable.shape == (2, 4, 9, 9)
        torch.testing.assert_close(readable.sum(-1), torch.ones(2, 4, 9))
        torch.testing.assert_close(readable, fast)


@torch.no_grad()
def test_bfloat16_in_bfloat16_out(model):
    ids = torch.randint(17, (2, 12))
    exact = model(ids)
    rounded = model.to(torch.bfloat16)(ids)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).abs().max() < 0.1 * exact.abs().max()


def test_an_input_longer_than_the_context_is_refused(model):
    with pytest.raises(InputError, match="13 tokens, more than the context of 12"):
        model(torch.zeros(1, 13, dtype=torch.long))


def test_parameter_names_are_the_documented_ones():
    per_layer = ["attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.output_proj"]
    per_layer += ["ln1", "ln2", "ffn.w1", "ffn.w2", "ffn.w3"]
    expected = {"token_embeddings.weight", "ln_final.weight", "lm_head.weight"}
    expected |= {f"layers.{i}.{part}.weight" for i in range(2) for part in per_layer}
    assert set(TransformerLM(**SHAPE, rope_theta=1e4).state_dict()) == expected


def test_positional_arguments_are_the_documented_ones():
    model = TransformerLM(17, 12, 16, 2, 4, 24, 10_000.0)
    assert model.config == TransformerLMConfig(**SHAPE)
    again = TransformerLM.from_config(model.config)
    again.load_state_dict(model.state_dict())
    ids = torch.randint(17, (1, 12))
    assert torch.equal(again(ids), model(ids))


def test_layers_share_one_rotary_table():
    model = TransformerLM(**SHAPE)
    assert model.layers[0].attn.rope is model.layers[1].attn.rope


def test_dropout_acts_in_training_only():
    model = TransformerLM(**SHAPE, dropout=0.5)
    ids = torch.randint(17, (2, 12))
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


def test_size_of_gpt2_xl_shape_without_tying():
    """50,257 x 1,600 twice, and in each of 48 layers four 1600^2, three 1600 x 6400, two norms."""
    config = {"vocab_size": 50_257, "context_length": 1024, "d_model": 1600, "num_layers": 48}
    model = TransformerLM(**config, num_heads=25, d_ff=6400, device="meta")
    assert sum(p.numel() for p in model.parameters()) == 2_127_057_600


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_sizes_of_the_gpt2_presets(preset, count):
    model = GPT2(GPT2_PRESETS[preset], device="meta")
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 18}, "d_model 18 is not divisible by num_heads 4"),
        ({"d_model": 12}, "even head size, it is 3"),
        ({"head_size": 0}, "head_size is 0"),
        ({"rope_factor": 0.0}, "rope_factor is 0.0"),
        ({"rope_low": 4.0}, "rope_low is 4.0, rope_high 4.0"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"context_length": -1}, "context_length is -1"),
        ({"num_kv_heads": 3}, "num_kv_heads 3 does not divide num_heads 4"),
        ({"window": 0}, "window is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"rope_theta": 0.0}, "rope_theta is 0.0"),
        ({"embedding_std": -1.0}, "embedding_std is -1.0"),
        ({"head_std": -0.1}, "head_std is -0.1"),
        ({"head_std": 0.0, "tied_head": True}, "head_std is 0.0, but with tied_head"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(fields, message):
    with pytest.raises(ConfigError, match=message) as caught:
        TransformerLMConfig(**{**SHAPE, **fields})
    assert "\n" not in str(caught.value)


def with_seed(**switches):
    torch.manual_seed(1)
    return TransformerLM(**SHAPE, **switches)


def test_outputs_that_start_at_zero_leave_the_stream_alone_and_all_else_as_it_was():
    plain, zeroed = with_seed().state_dict(), with_seed(zero_init_outputs=True)
    for key, value in zeroed.state_dict().items():
        starts_at_zero = key.endswith(("output_proj.weight", "ffn.w2.weight"))
        assert torch.equal(value, torch.zeros_like(value) if starts_at_zero else plain[key])
    ids = torch.randint(17, (2, 12))
    untouched = zeroed.ln_final(zeroed.token_embeddings(ids))
    assert torch.equal(zeroed.hidden_states(ids), untouched)


def test_every_part_learns_after_a_step_from_zero():
    model = with_seed(zero_init_outputs=True, head_std=0.0)
    ids = torch.randint(17, (2, 12))
    for _ in range(3):  # first the head moves, then what writes to the stream, then all the rest
        model.zero_grad()
        cross_entropy(model(ids), ids).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_head_of_zeros_gives_even_odds():
    model = with_seed(head_std=0.0)
    loss = cross_entropy(model(torch.randint(17, (2, 12))), torch.randint(17, (2, 12)))
    assert loss.item() == pytest.approx(math.log(17))


def test_tables_start_as_widely_as_asked():
    model = TransformerLM(**{**SHAPE, "vocab_size": 4000}, embedding_std=0.5, head_std=0.1)
    # Cutting a normal distribution at 3 takes 1.3 % of its width.
    assert model.token_embeddings.weight.std().item() == pytest.approx(0.5, rel=0.03)
    assert model.lm_head.weight.std().item() == pytest.approx(0.1, rel=0.03)


def test_embedding_norm_is_a_norm_of_the_tables_rows():
    model = with_seed(embedding_norm=True)
    plain = with_seed()
    with torch.no_grad():
        rows = plain.token_embeddings.weight
        rows.div_((rows.square().mean(-1, keepdim=True) + 1e-5).sqrt())
    ids = torch.randint(17, (2, 12))
    torch.testing.assert_close(model(ids), plain(ids))


def test_odd_heads_are_fine_without_rotation():
    odd = {**SHAPE, "d_model": 12}  # four heads of three
    model = TransformerLM(**odd, positions="learned")
    assert model(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, SHAPE["vocab_size"])
