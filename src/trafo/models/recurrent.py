"""RNN encoder-decoder with additive attention (Bahdanau, Cho and Bengio, 2015).

A bidirectional GRU reads the source; at each target step the decoder's state is the query of
additive attention over the source: s_t = GRU([y_(t-1); c_t], s_(t-1)) with
c_t = attention(s_(t-1), annotations). The logits come from a tanh layer over [s_t; c_t; y_(t-1)].
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.errors import require
from trafo.models.base import SequenceModel, embed, require_ids, require_positive
from trafo.nn import AdditiveAttention, Dropout, Embedding, GRUCell, Linear, length_mask, run_gru
from trafo.nn.dropout import require_dropout
from trafo.nn.precision import Device, Dtype


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """The shape of a RecurrentEncoderDecoder, whose sequences may have any length."""

    source_vocab_size: int = 32_000
    """source vocabulary size"""
    target_vocab_size: int = 32_000
    """target vocabulary size"""
    d_model: int = 256
    """embedding size"""
    d_hidden: int = 512
    """hidden size of the GRUs (each direction) and of the attention"""
    padding_id: int = 0
    """padding id: fills up short sentences; masked in attention"""
    dropout: float = 0.1
    """dropout probability during training"""

    def __post_init__(self) -> None:
        sizes = ("source_vocab_size", "target_vocab_size", "d_model", "d_hidden")
        require_positive(self, sizes)
        require_dropout(self.dropout)
        require(
            0 <= self.padding_id < min(self.source_vocab_size, self.target_vocab_size),
            f"padding_id {self.padding_id} is not in both vocabularies",
        )

    @property
    def context_length(self) -> int | None:
        """None: a recurrent state has no limit."""
        return None


@dataclass(frozen=True)
class Annotations:
    """The encoded source, the decoder's first state, and the keys that attention compares with."""

    states: Float[Tensor, "batch source d_both"]
    keys: Float[Tensor, "batch source d_hidden"]
    mask: Bool[Tensor, "batch 1 source"]
    first_state: Float[Tensor, "batch d_hidden"]


class RecurrentCache:
    """The decoder's state after the tokens so far, which is None before the first step."""

    def __init__(self) -> None:
        self.state: Tensor | None = None
        self.source: Annotations | None = None

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Row i becomes a copy of row `rows[i]`, for beam search."""
        if self.state is None or self.source is None:
            return
        source = self.source
        self.state = self.state[rows]
        self.source = Annotations(
            source.states[rows], source.keys[rows], source.mask[rows], source.first_state[rows]
        )


class RecurrentEncoderDecoder(SequenceModel):
    """(source ids, target ids) -> logits for the token after each target position."""

    has_source = True

    def __init__(self, config: RecurrentConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.config = config
        d_model, d_hidden = config.d_model, config.d_hidden
        place = (device, dtype)
        self.source_embeddings = Embedding(config.source_vocab_size, d_model, *place)
        self.target_embeddings = Embedding(config.target_vocab_size, d_model, *place)
        self.encoder_forward = GRUCell(d_model, d_hidden, *place)
        self.encoder_backward = GRUCell(d_model, d_hidden, *place)
        self.first_state = Linear(d_hidden, d_hidden, *place, bias=True)
        self.attention = AdditiveAttention(d_hidden, 2 * d_hidden, d_hidden, *place)
        self.decoder = GRUCell(d_model + 2 * d_hidden, d_hidden, *place)
        self.readout = Linear(d_hidden + 2 * d_hidden + d_model, d_model, *place, bias=True)
        self.lm_head = Linear(d_model, config.target_vocab_size, *place)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, source_ids: Int[Tensor, "batch source"], target_ids: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Encode the source, decode the target (teacher forcing)."""
        return self.decode(target_ids, self.encode(source_ids))

    def encode(self, source_ids: Int[Tensor, "batch source"]) -> Annotations:
        """Annotate each position with the forward and the backward state."""
        require_ids(source_ids)
        real = source_ids != self.config.padding_id
        x = self.dropout(embed(self.source_embeddings, source_ids))
        before = run_gru(self.encoder_forward, x, real)
        after = run_gru(self.encoder_backward, x, real, reverse=True)
        states = torch.cat([before, after], dim=-1)
        return Annotations(
            states=states,
            keys=self.attention.k_proj(states),
            mask=real[:, None, :],
            first_state=torch.tanh(self.first_state(after[:, 0])),
        )

    def hidden_states(
        self,
        target_ids: Int[Tensor, "batch target"],
        memory: Annotations,
        *,
        cache: RecurrentCache | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Final hidden states of the decoder, without the head."""
        require_ids(target_ids)
        memory = memory if cache is None or cache.source is None else cache.source
        state = memory.first_state if cache is None or cache.state is None else cache.state
        words = self.dropout(embed(self.target_embeddings, target_ids))
        real = _real(target_ids, lengths)
        outputs = []
        for i in range(target_ids.shape[1]):
            word = words[:, i]
            query = state[:, None]
            context = self.attention(query, memory.keys, memory.states, memory.mask)[:, 0]
            new = self.decoder(torch.cat([word, context], dim=-1), state)
            outputs.append(torch.cat([new, context, word], dim=-1))
            state = torch.where(real[:, i, None], new, state)
        if cache is not None:
            cache.state, cache.source = state.detach(), memory
        out: Tensor = self.dropout(torch.tanh(self.readout(torch.stack(outputs, dim=1))))
        return out

    def logits(self, states: Float[Tensor, "*lead d_model"]) -> Float[Tensor, "*lead vocab"]:
        """The output head, applied to any states."""
        out: Tensor = self.lm_head(states)
        return out

    @property
    def head_weight(self) -> Float[Tensor, "vocab d_model"]:
        """Matrix of the output head, which is the embedding table if tied."""
        weight: Tensor = self.lm_head.weight
        return weight

    def make_cache(self, batch: int, capacity: int | None = None) -> RecurrentCache:
        """An empty cache: it holds one state, whatever the number of tokens."""
        return RecurrentCache()


def _real(
    ids: Int[Tensor, "batch seq"], lengths: Int[Tensor, " batch"] | None
) -> Bool[Tensor, "batch seq"]:
    if lengths is None:
        return torch.ones_like(ids, dtype=torch.bool)
    return length_mask(lengths, ids.shape[1])
