"""TransformerLM and GPT-2 -> their parts: embeddings, blocks, head."""

from __future__ import annotations

from trafo.account.attention import AttentionShape, attention_component, attention_path
from trafo.account.layers import LayerParts, NormKind
from trafo.account.parts import Block, Component, Weight
from trafo.account.workload import Workload
from trafo.models import GPT2Config, TransformerLMConfig


def transformer_lm_blocks(config: TransformerLMConfig, work: Workload) -> tuple[Block, ...]:
    """Every switch of the config shows up here once."""
    parts = _parts(config, work)
    d_kv = (config.num_kv_heads or config.num_heads) * config.d_head
    projections = parts.projections(
        d_kv,
        bias=False,
        d_q=config.num_heads * config.d_head,
        qkv_bias=config.qkv_bias,
        d_qk_norm=config.d_head if config.qk_norm else None,
        d_rotary=config.d_head if config.positions == "rope" else 0,
    )
    attention = _attention(config, work, config.num_kv_heads, config.window)
    feed_forward = parts.feed_forward(config.feed_forward, config.feed_forward_size, bias=False)
    learned = config.positions == "learned"
    return _assemble(
        config,
        parts,
        (projections, attention, feed_forward),
        positions=config.context_length if learned else 0,
        norm=None if config.norm_placement == "none" else config.norm,
        final_norm=config.norm_placement == "pre",
        first_norm=config.norm if config.embedding_norm else None,
    )


def gpt2_blocks(config: GPT2Config, work: Workload) -> tuple[Block, ...]:
    parts = _parts(config, work)
    projections = parts.projections(config.d_model, bias=True)
    attention = _attention(config, work, None, None)
    feed_forward = parts.feed_forward("gelu_tanh", config.feed_forward_size, bias=True)
    return _assemble(
        config,
        parts,
        (projections, attention, feed_forward),
        positions=config.context_length,
        norm="layernorm",
        final_norm=True,
    )


def kv_cache_bytes(config: TransformerLMConfig | GPT2Config, work: Workload) -> int:
    """Keys and values of every token, layer and key/value head, and one slot to spare."""
    kv_heads = getattr(config, "num_kv_heads", None) or config.num_heads
    numbers_per_token = 2 * config.num_layers * kv_heads * config.d_head
    return work.batch_size * (work.seq + 1) * numbers_per_token * work.number_bytes


def _parts(config: TransformerLMConfig | GPT2Config, work: Workload) -> LayerParts:
    rows = work.batch_size * work.new_tokens
    return LayerParts(work, config.d_model, rows, config.dropout)


def _attention(
    config: TransformerLMConfig | GPT2Config,
    work: Workload,
    num_kv_heads: int | None,
    window: int | None,
) -> Component:
    # With a cache, a window is a mask over all that is stored; without, it saves the work.
    saves_work = window is not None and window < work.seq and work.is_training
    shape = AttentionShape(
        batch=work.batch_size,
        heads=config.num_heads,
        kv_heads=num_kv_heads or config.num_heads,
        d_head=config.d_head,
        queries=work.new_tokens,
        keys=work.seq,
        window=window if saves_work else None,
    )
    dropout = config.dropout if work.is_training else 0.0
    return attention_component(
        shape,
        attention_path(shape, dropout),
        dropout=dropout,
        training=work.is_training,
        number_bytes=work.number_bytes,
    )


def _assemble(
    config: TransformerLMConfig | GPT2Config,
    parts: LayerParts,
    layer: tuple[Component, ...],
    *,
    positions: int,
    norm: NormKind | None,
    final_norm: bool,
    first_norm: NormKind | None = None,
) -> tuple[Block, ...]:
    d_model, vocab, work = config.d_model, config.vocab_size, parts.work
    tables = [Weight("token_embeddings", (vocab, d_model), "table")]
    if positions:
        tables.append(Weight("position_embeddings", (positions, d_model), "table"))
    head = () if config.tied_head else (Weight("lm_head.weight", (vocab, d_model), "table"),)
    norms = () if norm is None else (parts.norms(2, norm),)
    embedding_norm = () if first_norm is None else (parts.norms(1, first_norm),)
    last_norm = (parts.norms(1, norm),) if final_norm and norm is not None else ()
    # Only training asks for the logits of every position.
    logit_rows = parts.rows if work.is_training else work.batch_size
    return (
        Block("input", (parts.embeddings(tuple(tables)), *embedding_norm)),
        Block("layers", (*norms, *layer), times=config.num_layers),
        Block("output", (*last_norm, parts.head(vocab, head, logit_rows))),
    )
