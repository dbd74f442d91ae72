"""The parts of Transformer layers, each with what it holds, computes and keeps.

A rule that covers every placement of norms: a norm keeps its input, a linear map keeps its input,
a sum keeps nothing. Cheap formulas (norms, activations) are run again in the backward pass instead
of being kept step by step, see `trafo.fast.recompute`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trafo.account.parts import Component, Kept, MatrixProduct, Weight
from trafo.account.workload import Workload

# Tensors that exist together while an activation's gradient is computed: the steps of its formula,
# run again, and their gradients. They are as large as a block of rows, see `trafo.fast.recompute`.
# SwiGLU's gradient is written out by hand.
_STEPS_OF = {"swiglu": 2, "silu": 6, "relu": 4, "relu2": 7, "gelu": 10, "gelu_tanh": 9}
BLOCK_NUMBERS = 2**18

# Numbers of logits that `trafo.fast.chunked_cross_entropy` computes at once.
LOGITS_AT_ONCE = 2**23

NormKind = Literal["rmsnorm", "layernorm"]


@dataclass(frozen=True)
class LayerParts:
    """Makes the components of layers that all run over `rows` tokens of `d_model` numbers."""

    work: Workload
    d_model: int
    rows: int
    dropout: float = 0.0

    def keep(self, name: str, numbers: int) -> tuple[Kept, ...]:
        """Kept, if there will be a backward pass."""
        return (Kept(name, numbers, self.work.number_bytes),) if self.work.is_training else ()

    def keep_dropout(self) -> tuple[Kept, ...]:
        return self.keep("dropout mask", self.rows * self.d_model) if self.dropout else ()

    def norms(self, number: int, kind: NormKind) -> Component:
        vectors = ("gain",) if kind == "rmsnorm" else ("gain", "shift")
        return Component(
            "norms",
            weights=tuple(
                Weight(f"norm {i + 1} {vector}", (self.d_model,), "vector")
                for i in range(number)
                for vector in vectors
            ),
            kept=number * self.keep("input of a norm", self.rows * self.d_model),
            workspace_bytes=self._bytes(4 * self._stream),
        )

    def feed_forward(self, kind: str, d_ff: int, *, bias: bool) -> Component:
        """SwiGLU has two maps up and one down, the others one and one."""
        up = ("w1", "w3") if kind == "swiglu" else ("w1",)
        sizes = dict.fromkeys(up, (self.d_model, d_ff)) | {"w2": (d_ff, self.d_model)}
        widened = self.rows * d_ff
        # What goes into w2, its gradient, and that of what the activation was given; SwiGLU was
        # given two, and the second's takes the place of the gradient it comes from.
        at_once = (3 if self.work.is_training else 1 + len(up)) * widened
        at_once += _STEPS_OF[kind] * min(widened, BLOCK_NUMBERS)
        return Component(
            "feed-forward",
            weights=tuple(
                w for name, size in sizes.items() for w in linear_weights(name, *size, bias)
            ),
            products=tuple(MatrixProduct(name, self.rows, *size) for name, size in sizes.items()),
            kept=(
                *self.keep("input of w1" if len(up) == 1 else "input of w1, w3", self._stream),
                *self.keep("widened, before the activation", len(up) * widened),
                *self.keep_dropout(),
            ),
            workspace_bytes=self._bytes(at_once + self._stream),
        )

    def projections(
        self,
        d_kv: int,
        *,
        bias: bool,
        d_q: int | None = None,
        qkv_bias: bool = False,
        d_qk_norm: int | None = None,
        d_rotary: int = 0,
    ) -> Component:
        """Into queries, keys and values, and out of the heads again."""
        d_q = d_q or self.d_model
        sizes = {
            "q_proj": (self.d_model, d_q),
            "k_proj": (self.d_model, d_kv),
            "v_proj": (self.d_model, d_kv),
            "output_proj": (d_q, self.d_model),
        }
        biased = set(sizes if bias else []) | set(["q_proj", "k_proj", "v_proj"] * qkv_bias)
        weights = [
            w for name, size in sizes.items() for w in linear_weights(name, *size, name in biased)
        ]
        kept = [*self.keep("input of q, k, v", self._stream)]
        if d_qk_norm is not None:
            weights += [Weight(f"{side}_norm gain", (d_qk_norm,), "vector") for side in "qk"]
            kept += self.keep("queries, keys before their norm", self.rows * (d_q + d_kv))
        if d_rotary and self.work.is_training:
            kept.append(Kept("rotations of queries, keys", 2 * self.work.seq * d_rotary, 4))
        return Component(
            "projections",
            weights=tuple(weights),
            products=tuple(
                MatrixProduct(name.removesuffix("_proj"), self.rows, *size)
                for name, size in sizes.items()
            ),
            kept=(*kept, *self.keep_dropout()),
            workspace_bytes=self._bytes(3 * self._stream),
        )

    def embeddings(self, weights: tuple[Weight, ...]) -> Component:
        """Rows of tables: no products. Kept are the ids, and dropout's mask."""
        ids = (Kept("ids", self.rows, 8),) if self.work.is_training else ()
        return Component(
            "embeddings",
            weights=weights,
            kept=(*ids, *self.keep_dropout()),
            workspace_bytes=self._bytes(2 * self._stream),
        )

    def head(
        self, vocab: int, weights: tuple[Weight, ...], logit_rows: int, *, chunked: bool = True
    ) -> Component:
        """States to logits; in training, the loss is part of it."""
        product = MatrixProduct("lm_head", logit_rows, self.d_model, vocab)
        kept: tuple[Kept, ...] = ()
        workspace = logit_rows * vocab
        if self.work.is_training:
            kept, workspace = self._loss_in_chunks(vocab) if chunked else self._loss(vocab)
        return Component("head", weights, (product,), kept, self._bytes(workspace))

    def _loss_in_chunks(self, vocab: int) -> tuple[tuple[Kept, ...], int]:
        """Its gradients are ready when the loss is. What it needs besides: a chunk of logits, or,
        in the backward pass, the scaled gradients, whichever is more.
        """
        table, stream = vocab * self.d_model, self._stream
        kept = (
            *self.keep("gradient of the states", stream),
            *self.keep("gradient of the table", table),
        )
        chunks = max(1, math.ceil(self.rows * vocab / LOGITS_AT_ONCE))
        chunk_rows = math.ceil(self.rows / chunks)
        chunk = chunk_rows * (vocab + self.d_model)
        return kept, stream + max(chunk, table)

    def _loss(self, vocab: int) -> tuple[tuple[Kept, ...], int]:
        """All logits at once: their exp is kept, logits and shifted logits pass by."""
        kept = (
            *self.keep("states", self._stream),
            *self.keep("exp of the logits", self.rows * vocab),
        )
        return kept, 2 * self.rows * vocab

    @property
    def _stream(self) -> int:
        """Numbers in the residual stream."""
        return self.rows * self.d_model

    def _bytes(self, numbers: int) -> int:
        return numbers * self.work.number_bytes


def linear_weights(name: str, d_in: int, d_out: int, bias: bool) -> tuple[Weight, ...]:
    matrix = Weight(f"{name}.weight", (d_out, d_in))
    return (matrix, Weight(f"{name}.bias", (d_out,), "vector")) if bias else (matrix,)
