"""How likely the model finds a given text: the log-probability of each of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trafo.generate.sampling import Token, with_logprobs
from trafo.models import CausalLM
from trafo.models.evaluating import evaluating


@torch.inference_mode()
def prompt_logprobs(model: CausalLM, ids: Sequence[int], alternatives: int) -> list[Token]:
    """A token for each id; the first has no log-probability, since nothing comes before it."""
    tensor = torch.tensor([ids], device=model.head_weight.device)
    with evaluating(model):
        logits = model(tensor)[0, :-1]
    if len(ids) == 1:
        return [Token(ids[0])]
    return [Token(ids[0]), *with_logprobs(logits, tensor[0, 1:], alternatives)]
