"""The Transformer of "Attention is all you need" (Vaswani et al., 2017): source ids to target ids.

The encoder reads the source in both directions; the decoder writes the target from left to right,
attending to what it wrote and, by cross-attention, to the encoded source.
"""

import math
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Module, ModuleList

from trafo.models.encoder_decoder_config import EncoderDecoderConfig
from trafo.models.encoder_decoder_layers import DecoderLayer, KeysValues, Parts
from trafo.models.validate import embed, require_fits_context
from trafo.nn import Dropout, Embedding, KVCache, SinusoidalPositions, padding_mask
from trafo.nn.precision import Device, Dtype


class Memory(NamedTuple):
    """The encoded source: a vector per position, and which positions are not padding."""

    states: Float[Tensor, "batch source d_model"]
    mask: Bool[Tensor, "batch 1 1 source"]


class DecoderCache:
    """KV cache of a decoder: keys and values of the target so far, and those of the source."""

    def __init__(self, target: KVCache) -> None:
        self.target = target
        self.source: list[KeysValues] | None = None  # filled by the first step
        self.source_mask: Tensor | None = None

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Row i becomes a copy of row `rows[i]`, for beam search."""
        self.target.reorder(rows)
        if self.source is not None and self.source_mask is not None:
            self.source = [(keys[rows], values[rows]) for keys, values in self.source]
            self.source_mask = self.source_mask[rows]


class EncoderDecoder(Module):
    """(source ids, target ids) -> logits for the token after each target position.

    Padding (`padding_id`) is on the right. The source's is masked; the target's comes after
    every real token, where the causal mask hides it.
    """

    def __init__(
        self, config: EncoderDecoderConfig, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.config = config
        build = Parts(config, device, dtype)
        shared = config.shared_embeddings
        self.target_embeddings = build.embedding(config.target_vocab_size)
        # Shared weights exist once: where table or head is None, the target's table is used.
        self.source_embeddings = (
            None if shared == "all" else build.embedding(config.source_vocab_size)
        )
        self.positions = SinusoidalPositions(config.d_model, config.context_length, device)
        self.dropout = Dropout(config.dropout)
        self.encoder = ModuleList(build.encoder_layer() for _ in range(config.num_encoder_layers))
        self.decoder = ModuleList(build.decoder_layer() for _ in range(config.num_decoder_layers))
        self.encoder_norm = build.norm() if config.final_norms else None
        self.decoder_norm = build.norm() if config.final_norms else None
        self.lm_head = build.head() if shared == "none" else None

    def forward(
        self, source_ids: Int[Tensor, "batch source"], target_ids: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Encode the source, decode the target (teacher forcing)."""
        return self.decode(target_ids, self.encode(source_ids))

    def encode(self, source_ids: Int[Tensor, "batch source"]) -> Memory:
        """Encode the source once; `decode` can use the result many times."""
        x = self._embed(self.source_embeddings or self.target_embeddings, source_ids, None)
        mask = padding_mask(source_ids, self.config.padding_id)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(x if self.encoder_norm is None else self.encoder_norm(x), mask)

    def decode(
        self,
        target_ids: Int[Tensor, "batch target"],
        memory: Memory,
        *,
        cache: DecoderCache | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits for the token after each target position.

        With a `cache` the ids continue its tokens, `lengths` says how many of each row are
        real, and the memory is read by the first step only.
        """
        return self.logits(self.hidden_states(target_ids, memory, cache=cache, lengths=lengths))

    def hidden_states(
        self,
        target_ids: Int[Tensor, "batch target"],
        memory: Memory,
        *,
        cache: DecoderCache | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Final hidden states of the decoder, without the head."""
        source, source_mask = self._source_keys_values(memory, cache)
        step = None if cache is None else cache.target.begin(target_ids.shape[1], lengths)
        positions = None if step is None else step.positions
        x = self._embed(self.target_embeddings, target_ids, positions)
        for index, layer in enumerate(self.decoder):
            part = None if step is None else step.layer(index)
            x = layer(x, source[index], source_mask, cache=part)
        if step is not None:
            step.finish()
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def logits(self, states: Float[Tensor, "*lead d_model"]) -> Float[Tensor, "*lead vocab"]:
        """The output head, applied to any states."""
        out: Tensor = states @ self.head_weight.T if self.lm_head is None else self.lm_head(states)
        return out

    @property
    def head_weight(self) -> Float[Tensor, "vocab d_model"]:
        """Matrix of the output head; the embedding table if tied."""
        return self.target_embeddings.weight if self.lm_head is None else self.lm_head.weight

    def make_cache(self, batch: int, capacity: int | None = None) -> DecoderCache:
        """An empty cache for `batch` targets of `capacity` tokens; None: the context length."""
        config, weight = self.config, self.target_embeddings.weight
        target = KVCache(
            num_layers=config.num_decoder_layers,
            batch=batch,
            num_kv_heads=config.num_heads,
            capacity=min(capacity or config.context_length, config.context_length),
            d_head=config.d_head,
            device=weight.device,
            dtype=weight.dtype,
        )
        return DecoderCache(target)

    def _embed(
        self, table: Embedding, ids: Int[Tensor, "batch seq"], positions: Tensor | None
    ) -> Float[Tensor, "batch seq d_model"]:
        """Embeddings scaled by sqrt(d_model), so that the sinusoids do not dominate."""
        require_fits_context(ids, self.config.context_length)
        words = embed(table, ids) * math.sqrt(self.config.d_model)
        out: Tensor = self.dropout(self.positions(words, positions))
        return out

    def _source_keys_values(
        self, memory: Memory, cache: DecoderCache | None
    ) -> tuple[list[KeysValues], Bool[Tensor, "batch 1 1 source"]]:
        """Every decoder layer's keys and values of the source, computed once for a cache."""
        if cache is not None and cache.source is not None and cache.source_mask is not None:
            return cache.source, cache.source_mask
        states = memory.states
        source = []
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            source.append(layer.cross_attn.keys_values(states, states))
        if cache is not None:
            cache.source, cache.source_mask = source, memory.mask
        return source, memory.mask
