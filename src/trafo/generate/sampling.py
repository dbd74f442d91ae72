"""Logits -> the next token. Each function is one definition, for a batch of rows.

Tokens that are filtered out get the logit -inf, so filters can be applied in any order. Ordinary
settings are applied in float32. Extreme ones, such as a temperature of 1e-300, are applied in
float64 and relative to the largest logit, where they cannot overflow into NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.errors import InputError
from trafo.generate.config import GenerationConfig
from trafo.nn import softmax

Logits = Float[Tensor, "batch vocab"]
Text = tuple[Sequence[int], int]
"""the ids of a row so far, and how many of them are its prompt"""
_LARGEST = 2.0**1020
"""of extreme settings' logits: the difference of two is still a finite number"""


@dataclass(frozen=True)
class Token:
    """A sampled token, its log-probability under the model, and the likeliest alternatives."""

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


def penalize_repetition(
    logits: Logits, seen: Bool[Tensor, "batch vocab"], penalty: float
) -> Logits:
    """Repetition penalty (Keskar et al., 2019): above 1, tokens seen before become less likely.

    Their positive logits are divided by the penalty, the others multiplied.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def penalize_counts(
    logits: Logits, counts: Float[Tensor, "batch vocab"], frequency: float, presence: float
) -> Logits:
    """OpenAI's penalties, by how often each token was generated: logit - c f - [c > 0] p."""
    return logits - counts * frequency - (counts > 0).to(logits) * presence


def add_bias(logits: Logits, config: GenerationConfig) -> Logits:
    """Add to the logits of some ids."""
    size, (ids, numbers) = logits.shape[-1], config.bias_arrays
    if ids.max() >= size:
        what = f"logit_bias has the id {ids.max()}, the model knows ids from 0 to {size - 1:,}"
        raise InputError(what, hint="use the ids of the model's own tokenizer")
    return logits + torch.from_numpy(np.bincount(ids, numbers, size)).to(logits)


def penalize(logits: Logits, config: GenerationConfig, texts: Sequence[Text]) -> Logits:
    """The penalties of the config, by what the rows hold."""
    if config.repetition_penalty != 1.0:
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        for row, (ids, _) in enumerate(texts):
            seen[row, torch.tensor(ids)] = True
        logits = _saturate(penalize_repetition(logits, seen, config.repetition_penalty))
    if config.frequency_penalty or config.presence_penalty:
        counts = torch.stack(
            [torch.tensor(ids[n:]).long().bincount(minlength=logits.shape[1]) for ids, n in texts]
        ).to(logits)
        penalties = config.frequency_penalty, config.presence_penalty
        logits = _saturate(penalize_counts(logits, counts, *penalties))
    return logits


def _saturate(logits: Logits) -> Logits:
    """What leaves the range of float64 stops at its end: infinities would make NaN."""
    return logits.clamp(-_LARGEST, _LARGEST) if logits.dtype == torch.float64 else logits


def keep_top_k(logits: Logits, k: int) -> Logits:
    """Top-k (Fan et al., 2018): keep the k likeliest tokens, and ties with the last of them."""
    least = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def keep_top_p(logits: Logits, p: float) -> Logits:
    """Nucleus (Holtzman et al., 2020): keep the smallest set with total probability p."""
    ordered, order = logits.sort(descending=True)
    probabilities = softmax(ordered, dim=-1)
    before = probabilities.cumsum(-1) - probabilities  # total of the likelier tokens
    dropped = before >= p
    dropped[:, 0] = False  # whatever the rounding, the likeliest token is kept
    ordered = ordered.masked_fill(dropped, -torch.inf)
    return torch.empty_like(logits).scatter_(-1, order, ordered)


def keep_min_p(logits: Logits, p: float) -> Logits:
    """Min-p (Nguyen et al., 2024): keep tokens at least p times as likely as the likeliest."""
    probabilities = softmax(logits, dim=-1)
    least = p * probabilities.amax(-1, keepdim=True)
    return logits.masked_fill(probabilities < least, -torch.inf)


def reshape_logits(
    logits: Logits, config: GenerationConfig, texts: Sequence[Text] | None = None
) -> Logits:
    """Apply penalties, temperature and filters; the softmax of the result is sampled from."""
    impossible = logits == -torch.inf if config.is_extreme else None
    logits = logits.float() if impossible is None else logits.double()
    if texts is not None:
        logits = penalize(logits, config, texts)
    if config.logit_bias:
        logits = _saturate(add_bias(logits, config))
    if impossible is not None:
        logits = logits.masked_fill(impossible, -torch.inf)
        logits = logits - logits.amax(-1, keepdim=True)
    if config.is_greedy:  # filters always keep the likeliest token
        return logits
    if config.temperature != 1.0:
        logits = logits / config.temperature
    if config.top_k is not None:
        logits = keep_top_k(logits, config.top_k)
    if config.top_p < 1.0:
        logits = keep_top_p(logits, config.top_p)
    if config.min_p > 0.0:
        logits = keep_min_p(logits, config.min_p)
    return logits


def draw(
    probabilities: Float[Tensor, "batch vocab"], uniforms: Sequence[float]
) -> Int[Tensor, " batch"]:
    """Inverse transform sampling: where the cumulative probability passes a uniform number.

    In float64, where the sum of many small numbers is still exact enough. A token of probability 0
    does not raise the sum, so it is never drawn, and no place is beyond the last token.
    """
    sums = probabilities.double().cumsum(-1)
    total = sums[:, -1:]
    places = total * torch.tensor(uniforms, dtype=sums.dtype, device=sums.device)[:, None]
    places = torch.minimum(places, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(sums, places, right=True)[:, 0]


def sample(
    logits: Logits,
    config: GenerationConfig,
    generators: Sequence[np.random.Generator],
    texts: Sequence[Text] | None = None,
) -> list[Token]:
    """Sample the next token of each row; only penalties need the texts.

    A row that cannot be sampled is refused before any random number is drawn.
    """
    if not logits.amax(-1).isfinite().all():  # NaN among them is the largest, too
        what = "the model computes NaN or infinity: its weights are damaged, or training diverged"
        raise InputError(what, hint="use an earlier checkpoint")
    shaped = reshape_logits(logits, config, texts)
    if config.is_greedy:
        chosen = shaped.argmax(-1)
    else:
        uniforms = [generator.random() for generator in generators]
        chosen = draw(softmax(shaped, dim=-1), uniforms)
    if config.logprobs is None:
        return [Token(i) for i in chosen.tolist()]
    return with_logprobs(logits, chosen, config.logprobs)


def with_logprobs(logits: Logits, chosen: Int[Tensor, " batch"], number: int) -> list[Token]:
    """Under the model's own distribution: no temperature, filter or penalty."""
    wide = logits.float()
    logprobs = wide - wide.logsumexp(-1, keepdim=True)
    own = logprobs.gather(-1, chosen[:, None])[:, 0].tolist()
    best = logprobs.topk(min(number, logits.shape[-1]))
    pairs = [
        tuple(zip(ids, values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return [Token(i, p, more) for i, p, more in zip(chosen.tolist(), own, pairs, strict=True)]


def sample_generator(seed: int, sample_index: int) -> np.random.Generator:
    """Random generator of one row, independent of the other prompts."""
    return np.random.default_rng([seed, sample_index])
