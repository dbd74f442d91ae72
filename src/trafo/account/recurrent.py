"""The recurrent encoder-decoder with additive attention -> its parts.

A GRU step multiplies one state at a time: as many small products as there are tokens, each waiting
for the one before. The work is the same as one large product; the time is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trafo.account.layers import LayerParts, linear_weights
from trafo.account.parts import Block, Component, Kept, MatrixProduct, Weight
from trafo.account.workload import Workload
from trafo.models import RecurrentConfig


def recurrent_blocks(config: RecurrentConfig, work: Workload) -> tuple[Block, ...]:
    sides = _Recurrent(config, work)
    reading: tuple[Component, ...] = (
        sides.source_embeddings(),
        sides.encoder(),
        sides.source_keys(),
    )
    if work.phase == "decode":  # the source has been read
        reading = tuple(replace(p, products=(), kept=(), workspace_bytes=0) for p in reading)
    return (
        Block("encoder", reading),
        Block("decoder", (sides.target_embeddings(), sides.attention(), sides.decoder())),
        Block("output", sides.output()),
    )


def state_bytes(config: RecurrentConfig, work: Workload) -> int:
    """The annotated source, its keys, and one state, however long the target grows."""
    source = 3 * work.batch_size * work.source * config.d_hidden
    return (source + work.batch_size * config.d_hidden) * work.number_bytes


@dataclass(frozen=True)
class _Recurrent:
    config: RecurrentConfig
    work: Workload

    @property
    def _source_rows(self) -> int:
        return self.work.batch_size * self.work.source

    @property
    def _target_rows(self) -> int:
        return self.work.batch_size * self.work.target_tokens

    def _parts(self, rows: int) -> LayerParts:
        return LayerParts(self.work, self.config.d_model, rows, self.config.dropout)

    def _keep(self, name: str, numbers: int) -> tuple[Kept, ...]:
        return self._parts(1).keep(name, numbers)

    def source_embeddings(self) -> Component:
        table = Weight(
            "source_embeddings", (self.config.source_vocab_size, self.config.d_model), "table"
        )
        return self._parts(self._source_rows).embeddings((table,))

    def target_embeddings(self) -> Component:
        table = Weight(
            "target_embeddings", (self.config.target_vocab_size, self.config.d_model), "table"
        )
        return self._parts(self._target_rows).embeddings((table,))

    def encoder(self) -> Component:
        """Two directions. Their first states are zeros, which need no gradient."""
        hidden, d_model, rows = self.config.d_hidden, self.config.d_model, self._source_rows
        weights: list[Weight] = []
        products: list[MatrixProduct] = []
        for way in ("forward", "backward"):
            weights += _gru_weights(f"encoder_{way}", d_model, hidden)
            inputs = MatrixProduct(f"{way} input_proj", rows, d_model, 3 * hidden)
            states = MatrixProduct(
                f"{way} hidden_proj",
                self.work.batch_size,
                hidden,
                3 * hidden,
                times=self.work.source,
                without_input_gradient=1,
            )
            products += [inputs, states]
        kept = (
            *self._keep("words", rows * d_model),
            *self._keep("gates and states of every step", 2 * rows * _KEPT_PER_STEP * hidden),
        )
        workspace = 2 * rows * 4 * hidden * self.work.number_bytes
        return Component("recurrence", tuple(weights), tuple(products), kept, workspace)

    def source_keys(self) -> Component:
        """Keys for the attention, and the decoder's first state."""
        hidden, rows = self.config.d_hidden, self._source_rows
        return Component(
            "source keys",
            weights=(
                *linear_weights("attention.k_proj", 2 * hidden, hidden, False),
                *linear_weights("first_state", hidden, hidden, True),
            ),
            products=(
                MatrixProduct("k_proj", rows, 2 * hidden, hidden),
                MatrixProduct("first_state", self.work.batch_size, hidden, hidden),
            ),
            kept=self._keep("annotations, and one direction again", 3 * rows * hidden),
            workspace_bytes=4 * rows * hidden * self.work.number_bytes,
        )

    def attention(self) -> Component:
        """score = w . tanh(Wq q + Wk k): for every target step a tensor as large as all keys."""
        hidden, batch, source = self.config.d_hidden, self.work.batch_size, self.work.source
        steps = self.work.target_tokens
        pairs = batch * steps * source
        return Component(
            "attention",
            weights=(
                *linear_weights("attention.q_proj", hidden, hidden, False),
                *linear_weights("attention.score", hidden, 1, False),
            ),
            products=(
                MatrixProduct("q_proj", batch, hidden, hidden, times=steps),
                MatrixProduct("score", batch * source, hidden, 1, times=steps),
                MatrixProduct("weights V", 1, source, 2 * hidden, times=batch * steps),
            ),
            kept=(
                *self._keep("compared queries and keys", pairs * hidden),
                *self._keep("scores on the way to weights", 3 * pairs),
            ),
            workspace_bytes=4 * batch * source * hidden * self.work.number_bytes,
        )

    def decoder(self) -> Component:
        hidden, d_model, batch = self.config.d_hidden, self.config.d_model, self.work.batch_size
        d_input, steps = d_model + 2 * hidden, self.work.target_tokens
        weights = tuple(_gru_weights("decoder", d_input, hidden))
        return Component(
            "recurrence",
            weights=weights,
            products=(
                MatrixProduct("input_proj", batch, d_input, 3 * hidden, times=steps),
                MatrixProduct("hidden_proj", batch, hidden, 3 * hidden, times=steps),
            ),
            kept=(
                *self._keep("word and context of every step", batch * steps * d_input),
                *self._keep(
                    "gates and states of every step", batch * steps * _KEPT_PER_STEP * hidden
                ),
            ),
            # Each step's weight gradient is added to those of the steps after it: three at once.
            workspace_bytes=3 * sum(weight.numbers for weight in weights) * self.work.number_bytes,
        )

    def output(self) -> tuple[Component, ...]:
        hidden, d_model, rows = self.config.d_hidden, self.config.d_model, self._target_rows
        parts, vocab = self._parts(rows), self.config.target_vocab_size
        readout = Component(
            "readout",
            weights=linear_weights("readout", 3 * hidden + d_model, d_model, True),
            products=(MatrixProduct("readout", rows, 3 * hidden + d_model, d_model),),
            kept=(
                *self._keep("state, context and word", rows * (3 * hidden + d_model)),
                *self._keep("tanh", rows * d_model),
                *parts.keep_dropout(),
            ),
            workspace_bytes=rows * (3 * hidden + d_model) * self.work.number_bytes,
        )
        head = (Weight("lm_head.weight", (vocab, d_model), "table"),)
        return (readout, parts.head(vocab, head, rows))


# A step keeps r, z, 1 - z, n and the state before, and the three projections of that state.
_KEPT_PER_STEP = 5 + 3


def _gru_weights(name: str, d_input: int, hidden: int) -> list[Weight]:
    return [
        *linear_weights(f"{name}.input_proj", d_input, 3 * hidden, True),
        *linear_weights(f"{name}.hidden_proj", hidden, 3 * hidden, True),
    ]
