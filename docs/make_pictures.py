"""Draws the pictures of architecture.md with the layers of trafo.nn themselves.

python docs/make_pictures.py        # writes docs/pictures/*.png, the same on every run
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from trafo.models import TransformerLM, record_attention
from trafo.nn import (
    AdditiveAttention,
    NadarayaWatson,
    RotaryPositionalEmbedding,
    SinusoidalPositions,
    attention_weights,
    average_pooling,
    kernel_weights,
    look_ahead_mask,
    nadaraya_watson,
)

FOLDER = Path(__file__).parent / "pictures"
BLUE, ORANGE, GREEN, GREY = "#2f6f9f", "#d9822b", "#3c8d5a", "#8a8f98"
TEXT = ["the", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired"]


def main() -> None:
    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "savefig.dpi": 110,
        }
    )
    FOLDER.mkdir(exist_ok=True)
    for draw in (kernel_regression, scores, heads, rotation, sinusoids, model):
        torch.manual_seed(0)
        figure = draw()
        figure.savefig(FOLDER / f"{draw.__name__}.png", metadata={"Software": None})
        plt.close(figure)


def kernel_regression() -> Figure:
    """Three ways to pool the same 50 noisy points, and the weights of the last two."""
    x, y, wide, learned = _regression()
    grid = torch.linspace(0, 5, 101)
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.7), layout="constrained")
    fit, *maps = axes
    fit.scatter(x, y, s=12, color=GREY, label="data: keys and values")
    fit.plot(grid, _truth(grid), color="black", lw=1, ls="--", label="truth")
    lines = (
        ("average pooling", GREY, average_pooling(grid, x, y[:, None])),
        ("w = 1", ORANGE, nadaraya_watson(grid, x, y[:, None], wide)),
        (f"w learned: {learned:.1f}", BLUE, nadaraya_watson(grid, x, y[:, None], learned)),
    )
    for label, colour, line in lines:
        fit.plot(grid, line[:, 0], color=colour, lw=2, label=label)
    fit.set(title="the fit", xlabel="query x", ylabel="value")
    fit.legend(frameon=False, fontsize=8.5)
    order = x.argsort()
    for axes_, width in zip(maps, (wide, learned), strict=True):
        image = axes_.imshow(
            kernel_weights(grid, x[order], width), aspect="auto", cmap="Blues", vmin=0
        )
        axes_.set(title=f"attention weights, w = {width:.1f}", xlabel="keys, sorted")
        axes_.set(ylabel="query x", yticks=[0, 50, 100], yticklabels=["0", "2.5", "5"])
        figure.colorbar(image, ax=axes_, shrink=0.85)
    return figure


def _truth(x: Tensor) -> Tensor:
    return 2 * x.sin() + x**0.8


def _regression() -> tuple[Tensor, Tensor, float, float]:
    """Data, and the width that predicts each point best from all the others."""
    x = torch.rand(50) * 5
    y = _truth(x) + 0.5 * torch.randn(50)
    pooling = NadarayaWatson(1.0)
    others = torch.tensor([[j for j in range(50) if j != i] for i in range(50)])
    for _ in range(300):
        predicted = pooling(x[:, None], x[others], y[others][..., None])[:, 0, 0]
        (slope,) = torch.autograd.grad((predicted - y).square().mean(), pooling.inverse_width)
        with torch.no_grad():
            pooling.inverse_width -= 0.5 * slope
    return x, y, 1.0, pooling.inverse_width.item()


def scores() -> Figure:
    """Three scores whose weights are set by hand to say the same: the nearer, the better."""
    points = torch.linspace(-2, 2, 41)
    ones = torch.ones_like(points)
    with torch.no_grad():
        weights = {
            "kernel: -(q - k)² / 2": kernel_weights(points, points),
            "additive: w · tanh(Wq q + Wk k)": _additive_weights(torch.stack([points, ones], -1)),
            "dot product: (q, 1) · (k, -k² / 2)": attention_weights(
                torch.stack([points, ones], -1) * 2**0.5,
                torch.stack([points, -points.square() / 2], -1),
            ),
        }
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
    for axes_, (title, weight) in zip(axes, weights.items(), strict=True):
        axes_.imshow(weight, cmap="Blues", vmin=0, origin="lower", extent=(-2, 2, -2, 2))
        axes_.set(title=title, xlabel="key", ylabel="query")
    return figure


def _additive_weights(vectors: Tensor) -> Tensor:
    """tanh(q - k + 1) - tanh(q - k - 1) is a hill above q = k."""
    attention = AdditiveAttention(2, 2, 2)
    attention.q_proj.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    attention.k_proj.weight.copy_(torch.tensor([[-1.0, 0.0], [-1.0, 0.0]]))
    attention.score.weight.copy_(torch.tensor([[3.0, -3.0]]))
    return attention.weights(vectors, attention.k_proj(vectors), vectors)


def heads() -> Figure:
    """Causal weights of four heads, as they are before any training."""
    model = TransformerLM(len(TEXT), len(TEXT), 64, 1, 4)
    names = sorted(set(TEXT))
    ids = torch.tensor([[names.index(word) for word in TEXT]])
    with torch.no_grad(), record_attention(model) as seen:
        model.layers[0].attn.q_proj.weight.mul_(3)  # an untrained model hardly chooses
        model(ids)
    figure, axes = plt.subplots(1, 4, figsize=(13, 4.0), layout="constrained", sharey=True)
    future = ~look_ahead_mask(len(TEXT))
    for head, axes_ in enumerate(axes):
        shown = seen["layers.0.attn"][0][0, head].masked_fill(future, float("nan"))
        image = axes_.imshow(shown, cmap="Blues", vmin=0, vmax=1)
        axes_.set_facecolor("#efefef")
        axes_.set_title(f"head {head}")
        axes_.set_xticks(range(len(TEXT)), TEXT, rotation=90)
        axes_.set_yticks(range(len(TEXT)), TEXT)
    axes[0].set_ylabel("query")
    figure.supxlabel("key (grey: the future, masked)", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.7)
    return figure


def rotation() -> Figure:
    """One pair turned step by step; all angles; and the score that only distance decides."""
    rope = RotaryPositionalEmbedding(10_000.0, 16, 64)
    figure, (turn, angles, score) = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
    start = torch.zeros(64, 16)
    start[:, 0], start[:, 2] = 1.0, 0.65
    turned = rope(start)
    for pair, colour in ((0, BLUE), (1, ORANGE)):
        for position in range(6):
            a, b = turned[position, 2 * pair : 2 * pair + 2].tolist()
            turn.annotate("", (a, b), (0, 0), arrowprops={"arrowstyle": "->", "color": colour})
            away = 1.12 if pair == 0 else 1.2
            turn.text(away * a, away * b, str(position), color=colour, ha="center", va="center")
    turn.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", xticks=[], yticks=[])
    turn.set_title("positions 0 to 5: pair 0 (blue)\nand pair 1 (orange)")
    turn.spines[:].set_visible(False)
    image = angles.imshow(rope.cos.T, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    angles.set(title="cos of the angle", xlabel="position", ylabel="pair")
    figure.colorbar(image, ax=angles, shrink=0.85)
    query, key = torch.randn(2, 16)
    queries, keys = rope(query.expand(64, 16)), rope(key.expand(64, 16))
    image = score.imshow(queries @ keys.T, cmap="RdBu")
    score.set(
        title="q·k of one query and one key,\nby their positions", xlabel="key", ylabel="query"
    )
    figure.colorbar(image, ax=score, shrink=0.85)
    return figure


def sinusoids() -> Figure:
    table = SinusoidalPositions(64, 100).table
    figure, (whole, waves) = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
    image = whole.imshow(table.T, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    whole.set(title="what is added to the embeddings", xlabel="position", ylabel="dimension")
    figure.colorbar(image, ax=whole, shrink=0.85)
    for dimension, colour in ((4, BLUE), (8, ORANGE), (16, GREEN), (32, GREY)):
        waves.plot(table[:, dimension], color=colour, label=f"dimension {dimension}")
    waves.set(title="some of its rows", xlabel="position")
    waves.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5)
    return figure


def model() -> Figure:
    """The model as boxes, with the block opened; names are those of the parameters."""
    figure, axes = plt.subplots(figsize=(8.6, 7.4), layout="constrained")
    axes.set(xlim=(0, 10), ylim=(0, 10.3), aspect="equal")
    axes.axis("off")
    _stack(axes)
    _block(axes)
    return figure


def _stack(axes: Axes) -> None:
    box = _boxes(axes, width=2.6, height=0.62)
    box(1.6, 1.3, "token_embeddings", ORANGE)
    for number, y in enumerate((2.8, 3.7)):
        box(1.6, y, f"layers.{number}", BLUE)
    axes.text(1.6, 4.62, "…", ha="center", va="center", fontsize=16)
    box(1.6, 5.5, "layers.N-1", BLUE)
    box(1.6, 6.9, "ln_final (RMSNorm)", GREEN)
    box(1.6, 8.1, "lm_head", ORANGE)
    axes.text(1.6, 0.3, "ids (batch, seq)", ha="center", va="center")
    axes.text(1.6, 9.3, "logits (batch, seq, vocab)", ha="center", va="center")
    for start, end in ((0.5, 0.97), (1.63, 2.47), (3.13, 3.37), (4.03, 4.4), (4.8, 5.17)):
        _arrow(axes, (1.6, start), (1.6, end))
    for start, end in ((5.83, 6.57), (7.23, 7.77), (8.43, 9.1)):
        _arrow(axes, (1.6, start), (1.6, end))


def _block(axes: Axes) -> None:
    """From bottom to top: the stream on the left, the two sublayers beside it."""
    frame = FancyBboxPatch(
        (4.0, 0.75), 5.9, 8.8, boxstyle="round,pad=0,rounding_size=0.15", fc="#f6f8fa", ec=BLUE
    )
    axes.add_patch(frame)
    axes.text(9.75, 9.3, "one layer: x + f(norm(x)), twice", ha="right", va="center", color=BLUE)
    for y in (3.39, 4.03):
        axes.plot((2.9, 4.0), (3.7, 0.75 if y < 3.7 else 9.55), color=BLUE, lw=0.7, ls=":")
    box = _boxes(axes, width=3.7, height=0.56)
    left, right = 4.9, 7.7
    _arrow(axes, (left, 0.2), (left, 4.42))
    _arrow(axes, (left, 4.98), (left, 8.32))
    _arrow(axes, (left, 8.88), (left, 10.1))
    axes.text(left + 0.2, 0.45, "x (batch, seq, d_model)", va="center")
    box(right, 1.75, "ln1 (RMSNorm)", GREEN)
    box(right, 2.6, "attn.q_proj   k_proj   v_proj", ORANGE)
    box(right, 3.3, "RoPE on q and k", GREY)
    box(right, 4.0, "softmax(q kᵀ/√d_head) v", BLUE)
    box(right, 4.7, "attn.output_proj", ORANGE)
    box(right, 5.75, "ln2 (RMSNorm)", GREEN)
    box(right, 6.6, "ffn.w1        ffn.w3", ORANGE)
    box(right, 7.6, "SiLU(w1 x) · w3 x", BLUE)
    box(right, 8.6, "ffn.w2", ORANGE)
    for branch, low, top, joints in (
        (1.2, 1.75, 4.7, (1.75, 2.6, 3.3, 4.0, 4.7)),
        (5.25, 5.75, 8.6, (5.75, 6.6, 7.6, 8.6)),
    ):
        axes.plot((left, right), (branch, branch), color="black", lw=1)
        _arrow(axes, (right, branch), (right, low - 0.28))
        for below, above in pairwise(joints):
            _arrow(axes, (right, below + 0.28), (right, above - 0.28))
        _arrow(axes, (right - 1.85, top), (left + 0.28, top))
        axes.add_patch(plt.Circle((left, top), 0.28, fc="white", ec="black", zorder=3))
        axes.text(left, top, "+", ha="center", va="center", fontsize=13, zorder=4)


def _boxes(axes: Axes, *, width: float, height: float) -> Callable[[float, float, str, str], None]:
    def box(x: float, y: float, label: str, colour: str) -> None:
        style = "round,pad=0,rounding_size=0.12"
        corner = (x - width / 2, y - height / 2)
        axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, fc="white", ec=colour))
        axes.text(x, y, label, ha="center", va="center", fontsize=9.5)

    return box


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    arrow = {"arrowstyle": "-|>", "color": "black", "lw": 1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=arrow)


if __name__ == "__main__":
    main()
