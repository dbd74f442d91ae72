"""What all decoder-only language models share: ids -> embeddings -> blocks -> norm -> logits.

A model says which parts it is made of (`transformer_lm.py`, `gpt2.py`); this says how they run.
"""

from functools import partial

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, ModuleList

from trafo import nn
from trafo.models.base import SequenceModel, embed, require_fits_context


class TransformerBlock(Module):
    """Self-attention, which mixes positions, and feed-forward, which works on each alone."""

    def __init__(
        self,
        attn: nn.MultiHeadSelfAttention,
        ffn: Module,
        ln1: Module | None,
        ln2: Module | None,
        *,
        norm_placement: nn.NormPlacement = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attn = attn
        self.ffn = ffn
        self.ln1 = ln1
        self.ln2 = ln2
        self.norm_placement: nn.NormPlacement = norm_placement
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        token_positions: Int[Tensor, "#batch seq"] | None = None,
        *,
        cache: nn.LayerCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Add self-attention, then feed-forward, with this layer's part of the KV cache."""
        attend = partial(self.attn, token_positions=token_positions, cache=cache)
        x = nn.residual(x, lambda h: self.dropout(attend(h)), self.ln1, self.norm_placement)
        return nn.residual(x, lambda h: self.dropout(self.ffn(h)), self.ln2, self.norm_placement)


class CausalLM(SequenceModel):
    """Runs assembled parts. Without `lm_head` the embedding table is the head (weight tying)."""

    def __init__(
        self,
        *,
        token_embeddings: nn.Embedding,
        position_embeddings: Module | None,
        layers: list[TransformerBlock],
        ln_final: Module | None,
        lm_head: nn.Linear | None,
        context_length: int,
        ln_embeddings: Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token_embeddings = token_embeddings
        self.ln_embeddings = ln_embeddings
        self.position_embeddings = position_embeddings
        self.dropout = nn.Dropout(dropout)
        self.layers = ModuleList(layers)
        self.ln_final = ln_final
        self.lm_head = lm_head
        self.context_length = context_length

    def forward(
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        cache: nn.KVCache | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch seq vocab"]:
        """Logits for the token after each position.

        Rows of different lengths are padded on the right, where causal attention hides it. With
        a `cache` the ids continue its tokens, and `lengths` says how many of each row are real.
        """
        return self.logits(self.hidden_states(ids, cache=cache, lengths=lengths))

    def hidden_states(
        self,
        ids: Int[Tensor, "batch seq"],
        memory: None = None,
        *,
        cache: nn.KVCache | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Final hidden states: for losses in chunks, last-token logits, sentence vectors."""
        require_fits_context(ids, self.context_length)
        step = None if cache is None else cache.begin(ids.shape[1], lengths)
        positions = None if step is None else step.positions
        x: Tensor = embed(self.token_embeddings, ids)
        if self.ln_embeddings is not None:
            x = self.ln_embeddings(x)
        if self.position_embeddings is not None:
            x = self.position_embeddings(x, positions)
        x = self.dropout(x)
        for index, layer in enumerate(self.layers):
            x = layer(x, positions, cache=None if step is None else step.layer(index))
        if step is not None:
            step.finish()
        return x if self.ln_final is None else self.ln_final(x)

    def logits(self, states: Float[Tensor, "*lead d_model"]) -> Float[Tensor, "*lead vocab"]:
        """The output head, applied to any states."""
        return states @ self.head_weight.T

    @property
    def head_weight(self) -> Float[Tensor, "vocab d_model"]:
        """Matrix of the output head, which is the embedding table if tied."""
        return self.token_embeddings.weight if self.lm_head is None else self.lm_head.weight

    def blocks(self) -> dict[str, Module]:
        """The layers by name."""
        return {f"layers.{index}": layer for index, layer in enumerate(self.layers)}

    def make_cache(self, batch: int, capacity: int | None = None) -> nn.KVCache:
        """Make an empty KV cache for `batch` rows of `capacity` tokens (None: the context)."""
        block, weight = self.layers[0], self.token_embeddings.weight
        assert isinstance(block, TransformerBlock)
        return nn.KVCache(
            num_layers=len(self.layers),
            batch=batch,
            num_kv_heads=block.attn.num_kv_heads,
            capacity=min(capacity or self.context_length, self.context_length),
            d_head=block.attn.d_head,
            device=weight.device,
            dtype=weight.dtype,
        )
