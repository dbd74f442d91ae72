"""The 2017 encoder-decoder -> its parts. Source and target have lengths of their own.

Training runs both sides over everything. A translation reads the source once (prefill: encoder,
the source's keys and values for every decoder layer, and one target token), then writes token by
token (decode), where the encoder has nothing left to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trafo.account.attention import AttentionShape, attention_component, attention_path
from trafo.account.layers import LayerParts, linear_weights
from trafo.account.parts import Block, Component, Weight
from trafo.account.workload import Workload
from trafo.models import EncoderDecoderConfig


def encoder_decoder_blocks(config: EncoderDecoderConfig, work: Workload) -> tuple[Block, ...]:
    sides = _Sides(config, work)
    return (
        Block("source", (sides.embeddings("source"),)),
        Block("encoder", sides.encoder_layer(), times=config.num_encoder_layers),
        Block("encoder output", sides.encoder_output()),
        Block("target", (sides.embeddings("target"),)),
        Block("decoder", sides.decoder_layer(), times=config.num_decoder_layers),
        Block("output", sides.decoder_output()),
    )


def source_cache_bytes(config: EncoderDecoderConfig, work: Workload) -> int:
    """Keys and values of the target so far (and a slot to spare) and of the source."""
    tokens = work.batch_size * (work.seq + 1 + work.source)
    return 2 * config.num_decoder_layers * tokens * config.d_model * work.number_bytes


@dataclass(frozen=True)
class _Sides:
    config: EncoderDecoderConfig
    work: Workload

    @property
    def source(self) -> LayerParts:
        rows = self.work.batch_size * self.work.source
        return LayerParts(self.work, self.config.d_model, rows, self.config.dropout)

    @property
    def target(self) -> LayerParts:
        rows = self.work.batch_size * self.work.target_tokens
        return LayerParts(self.work, self.config.d_model, rows, self.config.dropout)

    def embeddings(self, side: str) -> Component:
        vocab = getattr(self.config, f"{side}_vocab_size")
        shared = side == "source" and self.config.shared_embeddings == "all"
        table = Weight(f"{side}_embeddings", (vocab, self.config.d_model), "table")
        parts = self.source if side == "source" else self.target
        return self._once(parts.embeddings(() if shared else (table,)), only=side == "source")

    def encoder_layer(self) -> tuple[Component, ...]:
        config, parts, length = self.config, self.source, self.work.source
        layer = (
            parts.norms(2, "layernorm"),
            parts.projections(config.d_model, bias=config.attention_bias),
            self._attention("attention", length, length),
            parts.feed_forward(config.activation, config.d_ff, bias=True),
        )
        return tuple(self._once(part) for part in layer)

    def encoder_output(self) -> tuple[Component, ...]:
        """What all decoder layers read is kept once for all of them."""
        rows = self.work.batch_size * self.work.source
        memory = Component("memory", kept=self.source.keep("memory", rows * self.config.d_model))
        norms = (self.source.norms(1, "layernorm"),) if self.config.final_norms else ()
        return tuple(self._once(part) for part in (*norms, memory))

    def decoder_layer(self) -> tuple[Component, ...]:
        config, work, parts = self.config, self.work, self.target
        seen = work.seq if work.phase == "decode" else work.target_tokens
        return (
            parts.norms(3, "layernorm"),
            parts.projections(config.d_model, bias=config.attention_bias),
            self._attention("attention", work.target_tokens, seen),
            self._cross_projections(),
            self._attention("cross-attention", work.target_tokens, work.source),
            parts.feed_forward(config.activation, config.d_ff, bias=True),
        )

    def decoder_output(self) -> tuple[Component, ...]:
        config, parts = self.config, self.target
        norms = (parts.norms(1, "layernorm"),) if config.final_norms else ()
        vocab, d_model = config.target_vocab_size, config.d_model
        own = config.shared_embeddings == "none"
        head = linear_weights("lm_head", d_model, vocab, config.head_bias) if own else ()
        tables = tuple(replace(weight, role="table") for weight in head)
        chunked = not config.head_bias  # the loss in chunks knows a matrix only
        return (*norms, parts.head(vocab, tables, parts.rows, chunked=chunked))

    def _cross_projections(self) -> Component:
        """Queries and output for the target, keys and values for the source, which stay."""
        both = self.target.projections(self.config.d_model, bias=self.config.attention_bias)
        products = [
            replace(product, m=self.source.rows) if product.name in ("k", "v") else product
            for product in both.products
        ]
        if self.work.phase == "decode":
            products = [p for p in products if p.name not in ("k", "v")]
        return replace(both, name="cross projections", products=tuple(products))

    def _attention(self, name: str, queries: int, keys: int) -> Component:
        config, work = self.config, self.work
        shape = AttentionShape(
            batch=work.batch_size,
            heads=config.num_heads,
            kv_heads=config.num_heads,
            d_head=config.d_head,
            queries=queries,
            keys=keys,
        )
        dropout = config.dropout if work.is_training else 0.0
        component = attention_component(
            shape,
            attention_path(shape, dropout),
            dropout=dropout,
            training=work.is_training,
            number_bytes=work.number_bytes,
        )
        return replace(component, name=name)

    def _once(self, component: Component, *, only: bool = True) -> Component:
        """The encoder's parts are still there while decoding, but idle."""
        if self.work.phase != "decode" or not only:
            return component
        return replace(component, products=(), kept=(), workspace_bytes=0)
