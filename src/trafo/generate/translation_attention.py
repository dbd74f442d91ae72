"""A sentence and its translation -> attention weights of the model, and a picture of them.

Cross-attention shows which source tokens each target token attends to; the self-attention of
encoder and decoder shows the same within each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from trafo.data.pair_tokenizer import PairTokenizer
from trafo.errors import InputError
from trafo.models import SequenceModel, record_attention
from trafo.tokenizer.tokenizer import Tokenizer

Kind = Literal["cross", "encoder", "decoder"]

_PLACES: dict[Kind, tuple[str, str]] = {
    "cross": ("decoder", "cross_attn"),
    "encoder": ("encoder", "self_attn"),
    "decoder": ("decoder", "self_attn"),
}
_PANEL = 3.0  # inches, without the labels
_INCHES_PER_TOKEN = 0.22


@dataclass(frozen=True)
class TranslationAttention:
    """`weights[layer, head, i, j]`: how much token i of `rows` attends to token j of `columns`.

    Rows sum to 1.
    """

    rows: list[str]
    columns: list[str]
    weights: Float[Tensor, "layer head rows columns"]


@torch.inference_mode()
def translation_attention(
    model: SequenceModel,
    tokenizer: PairTokenizer,
    sentence: str,
    target: Sequence[int],
    kind: Kind = "cross",
) -> TranslationAttention:
    """Attention weights on a sentence and the ids of its translation (teacher forcing)."""
    source = tokenizer.encode_source([sentence])[0].tolist()
    sources, targets = _words(tokenizer.source, source), _words(tokenizer.target, target)
    shifted = torch.tensor([[tokenizer.end, *target[:-1]]])
    is_recurrent = model.config.context_length is None
    if is_recurrent and kind != "cross":
        what = "a recurrent model has no self-attention"
        raise InputError(what, hint="it only has cross-attention")
    with record_attention(model) as recorded:
        model(torch.tensor([source]), shifted)
    if is_recurrent:
        layers = [torch.stack(recorded["attention"], dim=2)]  # one layer, one head
    else:
        side, name = _PLACES[kind]
        found = ((path.split("."), weights) for path, weights in recorded.items())
        layers = [weights[0] for path, weights in found if (path[0], path[-1]) == (side, name)]
    rows = sources if kind == "encoder" else targets
    columns = targets if kind == "decoder" else sources
    return TranslationAttention(rows, columns, torch.stack(layers)[:, 0])


def draw_attention(attention: TranslationAttention, path: Path, *, heads: bool = False) -> None:
    """Plot with tokens on both axes: the mean of all heads, or a panel per layer and head."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    weights = attention.weights if heads else attention.weights.mean((0, 1), keepdim=True)
    layers, num_heads = weights.shape[:2]
    width = max(_PANEL, _INCHES_PER_TOKEN * len(attention.columns))
    height = max(_PANEL, _INCHES_PER_TOKEN * len(attention.rows))
    figure = Figure(figsize=(1.5 + width * num_heads, 1.5 + height * layers), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(layers, num_heads, squeeze=False)
    for layer in range(layers):
        for head in range(num_heads):
            axes = panels[layer][head]
            axes.imshow(weights[layer, head].numpy(), cmap="Blues", vmin=0, aspect="auto")
            axes.set_xticks(range(len(attention.columns)), attention.columns, rotation=90)
            axes.set_yticks(range(len(attention.rows)), attention.rows)
            axes.tick_params(labelsize=7, length=0)
            if heads:
                axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
    figure.savefig(path, dpi=150)


def _words(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Tokens as labels; `$` is escaped, as it would begin a formula."""
    texts = (tokenizer.vocab[i].decode(errors="replace") for i in ids)
    return [text.replace("$", r"\$").replace("<|endoftext|>", "(end)") for text in texts]
