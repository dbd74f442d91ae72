"""Every accelerated layer equals its readable twin, forward and gradient, for every switch.

In float64, where only the order of sums can differ: what is left is far below any real mistake.
"""

import copy
import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from trafo.fast import accelerate, head_loss, is_accelerated
from trafo.fast.accelerate import FAST
from trafo.models import (
    EncoderDecoderConfig,
    GPT2Config,
    ModelConfig,
    RecurrentConfig,
    TransformerLMConfig,
    build_model,
)
from trafo.nn import FeedForward, LayerNorm, Linear, RMSNorm, RotaryPositionalEmbedding, SwiGLU

TOLERANCE = {"atol": 1e-12, "rtol": 1e-9}
LANGUAGE = {"vocab_size": 23, "context_length": 12, "d_model": 16, "num_layers": 2, "num_heads": 4}
PAIRS = {"source_vocab_size": 23, "target_vocab_size": 23, "d_model": 16, "dropout": 0.0}
LAYERED = {"context_length": 12, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
SMALL: dict[type, dict[str, Any]] = {
    TransformerLMConfig: LANGUAGE,
    GPT2Config: LANGUAGE,
    EncoderDecoderConfig: PAIRS | LAYERED | {"d_ff": 40},
    RecurrentConfig: PAIRS | {"d_hidden": 12},
}
# What to try of the fields whose type does not say what they may be.
OTHERS: dict[str, tuple[Any, ...]] = {
    "d_ff": (40,),
    "head_size": (6,),
    "rope_theta": (50.0,),
    "rope_factor": (2.0,),
    "rope_low": (2.0,),
    "rope_high": (3.0,),
    "rope_original_context": (100,),
    "norm_eps": (1e-2,),
    "num_kv_heads": (1, 2, 4),
    "window": (1, 3, 5, 12, 50),
    "embedding_std": (0.5,),
    "head_std": (0.5,),
    "padding_id": (3,),
    "dropout": (0.3,),
    "attention_dropout": (0.3,),
}
TOGETHER = [
    TransformerLMConfig(**SMALL[TransformerLMConfig], num_kv_heads=2, window=5, qk_norm=True),
    TransformerLMConfig(
        **SMALL[TransformerLMConfig], norm="layernorm", norm_placement="post", feed_forward="gelu"
    ),
    EncoderDecoderConfig(
        **SMALL[EncoderDecoderConfig], norm_placement="pre", attention_bias=True, head_bias=True
    ),
]


def choices(kind: Any, name: str) -> tuple[Any, ...]:
    """All values of a switch; a new field must say what to try."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return (False, True) if kind is bool else OTHERS[name]


def configs() -> list[ModelConfig]:
    """The small config of each model, and each switch at each of its values."""
    found: list[ModelConfig] = list(TOGETHER)
    for kind, small in SMALL.items():
        found.append(kind(**small))
        hints = get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind) if f.name not in small]
        found += [kind(**small, **{n: v}) for n in names for v in choices(hints[n], n)]
    return found


def said(config: ModelConfig) -> str:
    """What is special about a config."""
    default = type(config)()
    values = dataclasses.asdict(config).items()
    shown = [f"{k}={v}" for k, v in values if v != getattr(default, k) and k not in SIZES]
    return "-".join([type(config).__name__, *shown])


SIZES = {name for small in SMALL.values() for name in small}


@pytest.fixture(params=configs(), ids=said)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A readable model in float64, and an accelerated copy of it."""
    model = build_model(request.param, dtype=torch.float64).double()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter)  # gains that are not 1, biases that are not 0
    return model, accelerate(copy.deepcopy(model))


def inputs(model: Any) -> tuple[torch.Tensor, ...]:
    ids = torch.randint(1, 23, (3, 12))
    if not model.has_source:
        return (ids,)
    source = torch.randint(4, 23, (3, 10))
    source[1, 4:] = model.config.padding_id
    return source, ids


def states(model: Any, given: tuple[torch.Tensor, ...]) -> torch.Tensor:
    if model.has_source:
        return model.hidden_states(given[1], model.encode(given[0]))
    return model.hidden_states(given[0])


def test_loss_and_gradients_are_those_of_the_readable_model(pair):
    given = inputs(pair[0])
    targets = torch.randint(1, 23, (3, 12))
    losses = []
    for model in pair:
        torch.manual_seed(7)  # both draw the same dropout
        losses.append(head_loss(model, states(model, given), targets))
        losses[-1].backward()
    torch.testing.assert_close(*losses, **TOLERANCE)
    for (name, mine), other in zip(pair[1].named_parameters(), pair[0].parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, msg=lambda m, n=name: n + m, **TOLERANCE)


@torch.no_grad()
def test_logits_without_gradients_are_those_of_the_readable_model(pair):
    given = tuple(x.repeat(8, 1) for x in inputs(pair[0]))  # enough rows for every special path
    torch.testing.assert_close(pair[1].eval()(*given), pair[0].eval()(*given), **TOLERANCE)


def test_every_layer_with_a_fast_version_has_it_and_the_weights_are_the_same(pair):
    readable, fast = pair
    assert not {type(module) for module in fast.modules()} & FAST.keys()
    assert {type(module) for module in readable.modules()}.isdisjoint(FAST.values())
    assert is_accelerated(fast)
    assert not is_accelerated(readable)
    for (name, mine), (other_name, other) in zip(
        fast.state_dict().items(), readable.state_dict().items(), strict=True
    ):
        assert name == other_name
        assert torch.equal(mine, other)


LAYERS = {
    "swiglu": (SwiGLU(6, 10), torch.randn(70, 6)),
    "relu": (FeedForward(6, 10, bias=True), torch.randn(2, 5, 6)),
    "gelu": (FeedForward(6, 10, "gelu"), torch.randn(6)),
    "rmsnorm": (RMSNorm(6), torch.randn(2, 5, 6)),
    "layernorm": (LayerNorm(6), torch.randn(2, 5, 6)),
    "layernorm of nothing": (LayerNorm(6), torch.randn(0, 6)),
    "rope": (RotaryPositionalEmbedding(100.0, 6, 9), torch.randn(2, 3, 5, 6)),
    "rope, odd strides": (RotaryPositionalEmbedding(9.0, 6, 9), torch.randn(3, 5, 7)[..., 1:]),
    "linear": (Linear(6, 4, bias=True), torch.randn(3, 2, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_layer_alone(assert_agree, name, dtype):
    layer, x = LAYERS[name]
    readable = copy.deepcopy(layer).to(dtype)
    fast = accelerate(copy.deepcopy(readable))
    assert type(fast) is FAST[type(layer)]
    atol = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 5e-2}[dtype]
    assert_agree(fast, readable, [x.to(dtype)], atol=atol, rtol=50 * atol)
    with torch.no_grad():
        assert fast(x.to(dtype)).dtype == dtype
        torch.testing.assert_close(
            fast(x.to(dtype)), readable(x.to(dtype)), atol=atol, rtol=50 * atol
        )


def test_accelerating_twice_is_accelerating_once_and_copies_stay_fast():
    model = accelerate(build_model(TransformerLMConfig(**SMALL[TransformerLMConfig])))
    kinds = [type(module) for module in model.modules()]
    assert [type(module) for module in accelerate(model).modules()] == kinds
    copied = copy.deepcopy(model)
    assert [type(module) for module in copied.modules()] == kinds
    assert is_accelerated(copied)


def test_mixed_precision_gives_what_the_readable_model_gives():
    readable: Any = build_model(TransformerLMConfig(**SMALL[TransformerLMConfig]))
    fast = accelerate(copy.deepcopy(readable))
    ids = torch.randint(23, (2, 12))
    found = []
    for model in (readable, fast):
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model.hidden_states(ids)
        head_loss(model, hidden.float(), ids).backward()
        found.append([p.grad for p in model.parameters()])
    for mine, other in zip(*found, strict=True):
        scale = other.abs().max()
        assert (mine - other).abs().max() < 0.05 * scale
