"""Generation without KV cache or batches: slow and obvious, the reference for all others.

Every token takes a forward pass over all tokens before it.
"""

from collections.abc import Sequence

import torch

from trafo.generate.config import GenerationConfig
from trafo.generate.request import window_start
from trafo.generate.sampling import Token, sample, sample_generator
from trafo.models import CausalLM


@torch.no_grad()
def generate_tokens(
    model: CausalLM,
    prompt: Sequence[int],
    config: GenerationConfig,
    *,
    sample_index: int = 0,
    end_id: int | None = None,
) -> list[Token]:
    """One completion of one prompt, up to the end token, which is left out."""
    ids = list(prompt)
    generator = sample_generator(config.seed, sample_index)
    tokens: list[Token] = []
    for _ in range(config.max_new_tokens):
        start = window_start(len(ids), model.context_length, config.kept_share)
        logits = model(torch.tensor([ids[start:]]))[:, -1]
        (token,) = sample(logits, config, [generator], [(ids, len(prompt))])
        if token.id == end_id:
            break
        ids.append(token.id)
        tokens.append(token)
    return tokens
