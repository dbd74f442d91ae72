"""Ids -> more ids: batched decoding by the model itself, one token per row and step.

    decoding = Decoding(model, prompts, config)
    while decoding.rows:
        for row, token in decoding.step(): ...
        decoding.drop(rows that are done)

`prefill` reads the prompts into the KV cache, `decode_one_token` adds one token, `sample` (in
`sampling.py`) chooses it. Prompts may differ in length; rows end independently and leave the batch.
The result of a row does not depend on the others, up to the rounding of matrix products.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trafo.errors import InputError
from trafo.generate.config import GenerationConfig
from trafo.generate.sampling import Token, sample, sample_generator
from trafo.generate.window import window_start
from trafo.models import CausalLM
from trafo.nn import KVCache


class Decoding:
    """A batch being decoded; row i * num_samples + j of `rows` is sample j of prompt i."""

    def __init__(
        self, model: CausalLM, prompts: Sequence[Sequence[int]], config: GenerationConfig
    ) -> None:
        for prompt in prompts:
            check_prompt(model, prompt)
        repeated = [i for i in range(len(prompts)) for _ in range(config.num_samples)]
        self.model = model
        self.config = config
        self.texts = [list(prompts[i]) for i in repeated]
        self.rows = list(range(len(repeated)))
        self._starts = [self._window_start(text) for text in self.texts]
        self._generators = [
            sample_generator(config.seed, j) for _ in prompts for j in range(config.num_samples)
        ]
        self._num_prompt = [len(text) for text in self.texts]
        self._cache, self._logits = self._read(prompts, repeated)

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Token]]:
        """Choose the next token of every row."""
        if not self.rows:
            return []
        if self._logits is None:
            self._logits = self._next_logits()
        texts = [(self.texts[row], self._num_prompt[row]) for row in self.rows]
        generators = [self._generators[row] for row in self.rows]
        tokens = sample(self._logits, self.config, generators, texts)
        self._logits = None
        for row, token in zip(self.rows, tokens, strict=True):
            self.texts[row].append(token.id)
        return list(zip(self.rows, tokens, strict=True))

    @torch.inference_mode()
    def drop(self, done: Collection[int]) -> None:
        """Remove finished rows from the batch."""
        places = [place for place, row in enumerate(self.rows) if row not in done]
        if len(places) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in places]
        if self.rows:
            self._cache.reorder(torch.tensor(places, device=self._device))

    # Computing the next logits

    @torch.inference_mode()
    def _read(
        self, prompts: Sequence[Sequence[int]], repeated: list[int]
    ) -> tuple[KVCache, Float[Tensor, "batch vocab"] | None]:
        """Prefill every prompt once, for all of its samples."""
        if not prompts or not self.config.max_new_tokens:
            return self.model.make_cache(0), None
        windows = [list(prompt)[self._window_start(prompt) :] for prompt in prompts]
        longest = max(len(prompt) for prompt in prompts) + self.config.max_new_tokens
        cache = self.model.make_cache(len(prompts), longest)
        logits = prefill(self.model, cache, windows)
        if self.config.num_samples > 1:
            order = torch.tensor(repeated, device=self._device)
            cache.reorder(order)
            logits = logits[order]
        return cache, logits

    def _next_logits(self) -> Float[Tensor, "batch vocab"]:
        """Decode one token in every row; a row whose window is full starts a new one."""
        last = torch.tensor([[self.texts[row][-1]] for row in self.rows], device=self._device)
        starts = [self._window_start(self.texts[row]) for row in self.rows]
        sliding = [p for p, row in enumerate(self.rows) if starts[p] != self._starts[row]]
        if not sliding:
            return decode_one_token(self.model, self._cache, last, None)
        return self._slide(last, starts, sliding)

    def _slide(
        self, last: Int[Tensor, "batch 1"], starts: list[int], sliding: list[int]
    ) -> Float[Tensor, "batch vocab"]:
        """Prefill the sliding rows from their new starts; decode one token in the others."""
        windows = [self.texts[self.rows[place]][starts[place] :] for place in sliding]
        fresh = self.model.make_cache(len(sliding), self._cache.capacity)
        their_logits = prefill(self.model, fresh, windows)
        for place in sliding:
            self._starts[self.rows[place]] = starts[place]
        if len(sliding) == len(self.rows):
            self._cache = fresh
            return their_logits
        counts = torch.ones(len(self.rows), dtype=torch.long, device=self._device)
        counts[sliding] = 0  # these rows skip the step
        logits = decode_one_token(self.model, self._cache, last, counts)
        places = torch.tensor(sliding, device=self._device)
        self._cache.replace(places, fresh)
        return logits.index_copy(0, places, their_logits)

    def _window_start(self, ids: Sequence[int]) -> int:
        return window_start(len(ids), self.model.context_length, self.config.kept_share)

    @property
    def _device(self) -> torch.device:
        return self.model.head_weight.device


def prefill(
    model: CausalLM, cache: KVCache, windows: Sequence[Sequence[int]]
) -> Float[Tensor, "batch vocab"]:
    """Read ids into an empty KV cache; returns the logits after each row's last id."""
    device = model.head_weight.device
    longest = max(map(len, windows))
    padded = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in windows], device=device)
    lengths = torch.tensor([len(ids) for ids in windows], device=device)
    even = all(len(ids) == longest for ids in windows)
    states = model.hidden_states(padded, cache=cache, lengths=None if even else lengths)
    last = states[torch.arange(len(windows), device=device), lengths - 1]
    return model.logits(last)


def decode_one_token(
    model: CausalLM,
    cache: KVCache,
    ids: Int[Tensor, "batch 1"],
    counts: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch vocab"]:
    """Read one more id per row (where the count is 1); returns the logits after it."""
    return model.logits(model.hidden_states(ids, cache=cache, lengths=counts)[:, -1])


def vocab_size(model: CausalLM) -> int:
    """Vocabulary size of the model: rows of its output head."""
    return model.head_weight.shape[0]


def check_prompt(model: CausalLM, ids: Sequence[int]) -> None:
    """A prompt must have ids, and the model must know them."""
    if not ids:
        raise InputError("a prompt has no ids", hint="begin with the id of <|endoftext|>")
    size = vocab_size(model)
    strange = next((i for i in ids if not 0 <= i < size), None)
    if strange is not None:
        raise InputError(
            f"a prompt has the id {strange}, the model knows ids from 0 to {size - 1:,}",
            hint="encode it with the model's own tokenizer",
        )
