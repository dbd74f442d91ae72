"""Every export is checked: read it back, run both, keep the largest difference beside the file."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from trafo.errors import InputError
from trafo.models import CausalLM
from trafo.models.base import evaluating
from trafo.runtime.atomic import atomic_write


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What was compared, and how far apart the logits were."""

    format: str
    largest_logit_difference: float
    largest_logit: float
    same_most_likely_token: float  # share of positions where both put the same token first
    tokens_compared: int
    seed: int = 0

    def write(self, path: Path) -> None:
        """Write a JSON file."""
        with atomic_write(path, "w") as file:
            file.write(json.dumps(asdict(self), indent=2) + "\n")


def save_checked(
    model: CausalLM,
    path: Path,
    file_format: str,
    write: Callable[[Path], None],
    load: Callable[[Path], CausalLM],
) -> Parity:
    """Write a draft, read it back and compare, then rename it to `path` beside its parity file."""
    with atomic_write(path) as file:
        draft = Path(file.name)
        write(draft)
        parity = measure_parity(model, load(draft), file_format)
    parity.write(path.with_name(path.name + ".parity.json"))
    return parity


@torch.no_grad()
def measure_parity(source: CausalLM, read_back: CausalLM, file_format: str) -> Parity:
    """Logits of both models on the same random ids, in float32."""
    generator = torch.Generator().manual_seed(Parity.seed)
    vocab = source.head_weight.shape[0]
    ids = torch.randint(vocab, (2, min(source.context_length, 128)), generator=generator)
    expected, found = _logits(source, ids), _logits(read_back, ids)
    if not expected.isfinite().all():
        what = "the model computes NaN or infinity: its weights are damaged, or training diverged"
        raise InputError(what, hint="use an earlier checkpoint")
    if not found.isfinite().all():
        what = f"as {file_format}, the model computes NaN or infinity"
        raise InputError(what, hint="its numbers are too large for this precision; use float32")
    return Parity(
        format=file_format,
        largest_logit_difference=(expected - found).abs().max().item(),
        largest_logit=expected.abs().max().item(),
        same_most_likely_token=(expected.argmax(-1) == found.argmax(-1)).float().mean().item(),
        tokens_compared=ids.numel(),
    )


def _logits(model: CausalLM, ids: Tensor) -> Tensor:
    with evaluating(model):
        logits: Tensor = model(ids.to(model.head_weight.device))
    return logits.float().cpu()
