import pytest
import torch

from trafo.errors import ConfigError, InputError
from trafo.fast import accelerate
from trafo.models import (
    EncoderDecoder,
    EncoderDecoderConfig,
    RecurrentConfig,
    RecurrentEncoderDecoder,
    record_attention,
)
from trafo.nn import look_ahead_mask

SHAPE = {
    "source_vocab_size": 19,
    "target_vocab_size": 17,
    "context_length": 10,
    "d_model": 16,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "d_ff": 24,
}
VARIANTS = {
    "post": {},
    "pre": {"norm_placement": "pre", "attention_bias": True},
    "shared": {"shared_embeddings": "target", "final_norms": False},
    "all-shared": {"source_vocab_size": 17, "shared_embeddings": "all", "activation": "gelu"},
}


@pytest.fixture(params=[*VARIANTS, "recurrent"])
def model(request):
    if request.param == "recurrent":
        config = RecurrentConfig(source_vocab_size=19, target_vocab_size=17, d_model=8, d_hidden=12)
        return RecurrentEncoderDecoder(config).eval()
    return EncoderDecoder(EncoderDecoderConfig(**{**SHAPE, **VARIANTS[request.param]})).eval()


def some_ids():
    source, target = torch.randint(1, 17, (3, 8)), torch.randint(1, 17, (3, 7))
    source[1, 5:] = 0
    source[2, 2:] = 0
    return source, target


def copy_attention(ours, theirs):
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    theirs.out_proj.weight.copy_(ours.output_proj.weight)
    theirs.out_proj.bias.copy_(ours.output_proj.bias)


def copy_plain(pairs):
    for ours, theirs in pairs:
        theirs.load_state_dict(ours.state_dict())


@torch.no_grad()
def torch_twin(model):
    """torch.nn.Transformer with our weights."""
    config = model.config
    twin = torch.nn.Transformer(
        config.d_model,
        config.num_heads,
        config.num_encoder_layers,
        config.num_decoder_layers,
        config.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=config.norm_placement == "pre",
    )
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.normal_()  # biases and gains that are not 0 and 1
    for ours, theirs in zip(model.encoder, twin.encoder.layers, strict=True):
        copy_attention(ours.self_attn, theirs.self_attn)
        copy_plain([(ours.ffn.w1, theirs.linear1), (ours.ffn.w2, theirs.linear2)])
        copy_plain([(ours.ln1, theirs.norm1), (ours.ln2, theirs.norm2)])
    for ours, theirs in zip(model.decoder, twin.decoder.layers, strict=True):
        copy_attention(ours.self_attn, theirs.self_attn)
        copy_attention(ours.cross_attn, theirs.multihead_attn)
        copy_plain([(ours.ffn.w1, theirs.linear1), (ours.ffn.w2, theirs.linear2)])
        copy_plain([(ours.ln1, theirs.norm1), (ours.ln2, theirs.norm2), (ours.ln3, theirs.norm3)])
    copy_plain([(model.encoder_norm, twin.encoder.norm), (model.decoder_norm, twin.decoder.norm)])
    return twin


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("fast", [False, True])
def test_equals_torch_transformer_with_equal_weights(placement, fast):
    config = {"norm_placement": placement, "attention_bias": True, "dropout": 0.0}
    model = EncoderDecoder(EncoderDecoderConfig(**SHAPE, **config))
    twin = torch_twin(model)
    source, target = some_ids()
    logits = (accelerate(model) if fast else model)(source, target)
    embedded = [
        model.positions(table(ids) * 4.0)
        for table, ids in [(model.source_embeddings, source), (model.target_embeddings, target)]
    ]
    padding = source == 0
    states = twin(
        *embedded,
        tgt_mask=~look_ahead_mask(7),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    expected = states @ model.head_weight.T
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)

    table = model.source_embeddings.weight  # the longest way that a gradient can take
    (mine,) = torch.autograd.grad(logits.square().sum(), [table])
    (other,) = torch.autograd.grad(expected.square().sum(), [table])
    torch.testing.assert_close(mine, other, atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_padding_of_the_source_changes_nothing(model):
    source, target = some_ids()
    whole = model(source, target)
    torch.testing.assert_close(model(source[2:, :2], target[2:]), whole[2:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        model(source[1:2, :5], target[1:2]), whole[1:2], atol=1e-5, rtol=1e-5
    )


@torch.no_grad()
def test_padding_of_the_target_changes_no_real_token(model):
    source, target = some_ids()
    padded = target.clone()
    padded[:, 4:] = 0
    alone = model(source, target[:, :4])
    torch.testing.assert_close(model(source, padded)[:, :4], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_decoder_never_sees_the_future(model):
    source, target = some_ids()
    changed = target.clone()
    changed[:, 3:] = changed[:, 3:] % 16 + 1
    assert torch.equal(model(source, target)[:, :3], model(source, changed)[:, :3])


@torch.no_grad()
def test_cached_equals_uncached_for_rows_of_different_lengths(model):
    source, target = some_ids()
    whole = model(source, target)
    memory = model.encode(source)
    cache = model.make_cache(3)
    lengths, rows = torch.tensor([1, 3, 2]), torch.arange(3)
    first = model.decode(target[:, :3], memory, cache=cache, lengths=lengths)
    torch.testing.assert_close(
        first[rows, lengths - 1], whole[rows, lengths - 1], atol=1e-5, rtol=1e-5
    )
    for step in range(4):
        at = lengths + step
        out = model.decode(target[rows, at][:, None], memory, cache=cache)
        torch.testing.assert_close(out[:, 0], whole[rows, at], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_reordered_cache_continues_the_other_rows(model):
    source, target = some_ids()
    whole = model(source, target)
    memory = model.encode(source)
    cache = model.make_cache(3)
    model.decode(target[:, :4], memory, cache=cache)
    order = torch.tensor([2, 0, 0, 1])
    cache.reorder(order)
    out = model.decode(target[order, 4:5], memory, cache=cache)
    torch.testing.assert_close(out[:, 0], whole[order, 4], atol=1e-5, rtol=1e-5)


def test_every_parameter_learns(model):
    source, target = some_ids()
    model(source, target).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@torch.no_grad()
def test_weights_of_all_three_attentions():
    model = EncoderDecoder(EncoderDecoderConfig(**SHAPE)).eval()
    source, target = some_ids()
    with record_attention(model) as weights:
        model(source, target)
    shapes = {name: [w.shape for w in found] for name, found in weights.items()}
    expected = {f"encoder.{i}.self_attn": [(3, 4, 8, 8)] for i in range(2)}
    expected |= {f"decoder.{i}.self_attn": [(3, 4, 7, 7)] for i in range(3)}
    expected |= {f"decoder.{i}.cross_attn": [(3, 4, 7, 8)] for i in range(3)}
    assert shapes == expected
    assert not weights["decoder.0.cross_attn"][0][2, ..., 2:].any()  # padding gets no attention


@torch.no_grad()
def test_weights_of_additive_attention_at_each_step():
    config = RecurrentConfig(source_vocab_size=19, target_vocab_size=17, d_model=8, d_hidden=12)
    with record_attention(RecurrentEncoderDecoder(config).eval()) as weights:
        pass
    assert weights == {"attention": []}
    model = RecurrentEncoderDecoder(config).eval()
    with record_attention(model) as weights:
        model(*some_ids())
    assert [w.shape for w in weights["attention"]] == [(3, 1, 8)] * 7
    model(*some_ids())
    assert len(weights["attention"]) == 7  # nothing is recorded after the end


def test_shared_tables_exist_once():
    shape = {**SHAPE, "source_vocab_size": 17}
    apart, target, everything = (
        sum(p.numel() for p in EncoderDecoder(config).parameters())
        for config in (
            EncoderDecoderConfig(**shape, shared_embeddings=kind)
            for kind in ("none", "target", "all")
        )
    )
    assert apart - target == target - everything == 17 * 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 18}, "d_model 18 is not divisible by num_heads 4"),
        ({"target_vocab_size": 0}, "target_vocab_size is 0"),
        ({"shared_embeddings": "all"}, "vocabularies of 19 and 17 differ"),
        ({"padding_id": 18}, "padding_id 18 is not in both vocabularies"),
        ({"dropout": -1.0}, "dropout is -1"),
        ({"shared_embeddings": "target", "head_bias": True}, "head_bias with shared_embeddings"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(fields, message):
    with pytest.raises(ConfigError, match=message):
        EncoderDecoderConfig(**{**SHAPE, **fields})


def test_a_sentence_longer_than_the_context_is_refused():
    model = EncoderDecoder(EncoderDecoderConfig(**SHAPE))
    with pytest.raises(InputError, match="11 tokens, more than the context of 10"):
        model.encode(torch.ones(1, 11, dtype=torch.long))
