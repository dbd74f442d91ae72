"""The adapters of layers, models and loss, each called as the public suite calls it."""

import torch
from torch.nn import functional


def same(result, expected):
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_layers(adapters):
    x, w = torch.randn(4, 12, 64), torch.randn(128, 64)
    same(adapters.run_linear(64, 128, w, x), x @ w.T)
    ids = torch.randint(128, (4, 12))
    same(adapters.run_embedding(128, 64, w, ids), w[ids])
    gain = torch.randn(64)
    same(adapters.run_rmsnorm(64, 1e-5, gain, x), functional.rms_norm(x, (64,), gain, 1e-5))
    same(adapters.run_silu(x), functional.silu(x))
    same(adapters.run_softmax(x + 100, -1), x.softmax(-1))
    w2, w3 = torch.randn(64, 128), torch.randn(128, 64)
    gated = (functional.silu(x @ w.T) * (x @ w3.T)) @ w2.T
    torch.testing.assert_close(
        adapters.run_swiglu(64, 128, w, w2, w3, x), gated, rtol=1e-4, atol=1e-2
    )


def test_attention(adapters):
    q, k, v = torch.randn(3, 4, 2, 12, 16).unbind()
    mask = torch.rand(4, 2, 12, 12) > 0.3
    expected = functional.scaled_dot_product_attention(q, k, v, mask)
    same(adapters.run_scaled_dot_product_attention(Q=q, K=k, V=v, mask=mask), expected)


def by_hand(x, weights, heads, rope=None):
    q, k, v = (x @ weights[n].T for n in ("q_proj", "k_proj", "v_proj"))
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    if rope is not None:
        q, k = rope(q), rope(k)
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).flatten(-2) @ weights["o_proj"].T


def test_multihead_attention_with_and_without_rope(adapters):
    x = torch.randn(4, 12, 64)
    weights = {f"{n}_proj": torch.randn(64, 64) / 8 for n in "qkvo"}
    named = {f"{key}_weight": value for key, value in weights.items()}
    plain = adapters.run_multihead_self_attention(64, 4, in_features=x, **named)
    same(plain, by_hand(x, weights, 4))

    places = torch.arange(12)
    turned = adapters.run_multihead_self_attention_with_rope(
        64, 4, 12, 1e4, in_features=x, token_positions=places[None], **named
    )
    same(turned, by_hand(x, weights, 4, lambda t: adapters.run_rope(16, 1e4, 12, t, places)))


def lm_weights(vocab, d, d_ff, layers):
    block = {f"attn.{n}_proj.weight": torch.randn(d, d) / 8 for n in ("q", "k", "v", "output")}
    block |= {"ln1.weight": torch.rand(d), "ln2.weight": torch.rand(d)}
    block |= {"ffn.w1.weight": torch.randn(d_ff, d) / 8, "ffn.w3.weight": torch.randn(d_ff, d) / 8}
    block |= {"ffn.w2.weight": torch.randn(d, d_ff) / 8}
    weights = {f"layers.{i}.{name}": w for i in range(layers) for name, w in block.items()}
    weights |= {"token_embeddings.weight": torch.randn(vocab, d), "ln_final.weight": torch.rand(d)}
    return block, weights | {"lm_head.weight": torch.randn(vocab, d)}


def test_the_model_is_its_blocks(adapters):
    block, weights = lm_weights(vocab=50, d=64, d_ff=128, layers=3)
    ids = torch.randint(50, (4, 12))
    x = weights["token_embeddings.weight"][ids]
    for _ in range(3):
        x = adapters.run_transformer_block(64, 4, 128, 16, 1e4, block, x)
    x = adapters.run_rmsnorm(64, 1e-5, weights["ln_final.weight"], x)
    logits = adapters.run_transformer_lm(50, 16, 64, 3, 4, 128, 1e4, weights, ids)
    same(logits, x @ weights["lm_head.weight"].T)


def test_cross_entropy(adapters):
    logits, targets = 1000 * torch.randn(8, 5), torch.randint(5, (8,))
    same(adapters.run_cross_entropy(logits, targets), functional.cross_entropy(logits, targets))
