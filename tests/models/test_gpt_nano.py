"""A trained GPT-2-shaped model, compared layer by layer with the activations stored beside it."""

import base64
import json

import pytest
import torch

from trafo.fast import accelerate
from trafo.models import GPT2, GPT2Config, record_attention

RENAMED = {
    "transformer.wte.weight": "token_embeddings.weight",
    "transformer.wpe.weight": "position_embeddings.weight",
    "transformer.ln_f.": "ln_final.",
    "transformer.h.": "layers.",
    ".ln_1.": ".ln1.",
    ".ln_2.": ".ln2.",
    ".attn.c_proj.": ".attn.output_proj.",
    ".mlp.c_fc.": ".ffn.w1.",
    ".mlp.c_proj.": ".ffn.w2.",
}


def tensors(path):
    stored = json.loads(path.read_text())
    config = stored.pop("config")
    read = {
        name: torch.frombuffer(bytearray(base64.b64decode(entry["data"])), dtype=torch.float32)
        .view(entry["shape"])
        .clone()
        for name, entry in stored.items()
    }
    return config, read


def our_state(stored):
    state = {}
    for name, tensor in stored.items():
        if name.endswith(".attn.bias"):
            continue  # a mask, not a weight
        for theirs, ours in RENAMED.items():
            name = name.replace(theirs, ours)
        if ".c_attn." in name:
            for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                state[name.replace("c_attn", f"{part}_proj")] = rows
        else:
            state[name] = tensor
    return state


@pytest.fixture
def nano(shared_data):
    config, stored = tensors(shared_data / "gpt-nano" / "gpt-nano-sort-model.json")
    model = GPT2(
        GPT2Config(
            vocab_size=config["vocab_size"],
            context_length=config["block_size"],
            d_model=config["n_embd"],
            num_layers=config["n_layer"],
            num_heads=config["n_head"],
            tied_head=False,
        )
    )
    model.load_state_dict(our_state(stored))
    return model.eval()


def outputs_by_name(model, ids):
    """Run once and keep what each module put out (and the first block's attention took in)."""
    seen, hooks = {}, []

    def keep(key):
        return lambda module, inputs, output: seen.__setitem__(key, (inputs, output))

    for name, module in model.named_modules():
        hooks.append(module.register_forward_hook(keep(name)))
    with record_attention(model) as weights:
        seen["logits"] = ((), model(ids))
    for hook in hooks:
        hook.remove()
    return seen, weights


@torch.no_grad()
def test_every_stored_activation(nano, shared_data):
    _, stored = tensors(shared_data / "gpt-nano" / "gpt-nano-sort-t0-partials.json")
    ids = stored.pop("idx").long()
    seen, weights = outputs_by_name(nano, ids)

    def out(name):
        return seen[name][1]

    def into(name):
        return seen[name][0][0]

    q, k, v = (out(f"layers.0.attn.{part}_proj") for part in "qkv")
    heads = {
        name: x.unflatten(-1, (3, 16)).transpose(1, 2)
        for name, x in {"q": q, "k": k, "v": v}.items()
    }
    scores = heads["q"] @ heads["k"].transpose(-1, -2) / 4
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    after_attention = into("layers.0.ln2")
    ours = {
        "tok_emb": out("token_embeddings"),
        "pos_emb": nano.position_embeddings.weight[None, : ids.shape[1]],
        "x": out("position_embeddings"),
        "ln1": out("layers.0.ln1"),
        **heads,
        "qkv": torch.cat([q, k, v], -1),
        "att": scores.masked_fill(ahead, -torch.inf),
        "attSm": weights["layers.0.attn"][0],
        "y": into("layers.0.attn.output_proj"),
        "yProj": out("layers.0.attn"),
        "attnResid": after_attention,
        "ln2": out("layers.0.ln2"),
        "fc": out("layers.0.ffn.w1"),
        "gelu": into("layers.0.ffn.w2"),
        "mlp": out("layers.0.ffn"),
        "mlpResid": after_attention + out("layers.0.ffn"),
        **{f"block{i}": out(f"layers.{i}") for i in range(3)},
        "ln_f": out("ln_final"),
        "lm_head": out("logits"),
        "probs": out("logits").softmax(-1),
    }
    assert ours.keys() == stored.keys()
    for name, expected in stored.items():
        torch.testing.assert_close(ours[name].view_as(expected), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_accelerated_it_sorts_as_well(nano):
    """The model was trained to sort six digits of 0..2: after them come the same, sorted."""
    accelerate(nano)
    ids = torch.tensor([[0, 0, 2, 1, 0, 1], [2, 1, 0, 2, 2, 1]])
    answer = ids
    for _ in range(6):
        answer = torch.cat([answer, nano(answer[:, :11])[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(answer[:, 6:], ids.sort(-1).values)
