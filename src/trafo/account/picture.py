"""Shares of the forward FLOPs as stacked bars: by GPT-2 size and by context length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trafo.account.account import account
from trafo.account.report import shares
from trafo.account.workload import Workload
from trafo.models import (
    GPT2_PRESETS,
    GPT2Config,
    ModelConfig,
    RecurrentConfig,
    TransformerLMConfig,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONTEXTS = (256, 1024, 4096, 16_384, 65_536)
SENTENCES = (4, 8, 16, 32, 64)
"""for a model that runs one position after the other, even in a dry run"""
_COLOURS = {
    "projections": "#4c78a8",
    "attention": "#e45756",
    "cross projections": "#9ecae9",
    "cross-attention": "#ff9d98",
    "feed-forward": "#54a24b",
    "recurrence": "#b279a2",
    "source keys": "#9d755d",
    "readout": "#f2cf5b",
    "head": "#eeca3b",
}

_LIGHT = {"head", "readout", "cross projections", "cross-attention"}

Bars = Mapping[str, Mapping[str, float]]


def draw_shares(name: str, config: ModelConfig, work: Workload, path: Path) -> None:
    """Plot each part's share of the FLOPs; the file name's ending chooses the format."""
    panels = [("by context length", shares_by_context(config, work))]
    by_size = shares_by_size(config, work)
    if by_size:
        panels.insert(0, (f"by size, {work.seq:,} tokens", by_size))
    _draw(f"{name}: where the FLOPs of a forward pass go", panels, path)


def shares_by_size(config: ModelConfig, work: Workload) -> Bars:
    """The model at the widths and depths of the four GPT-2 sizes; none for other models."""
    if not isinstance(config, TransformerLMConfig | GPT2Config):
        return {}
    return {
        name: shares(account(_sized(config, size), work)) for name, size in GPT2_PRESETS.items()
    }


def _sized(config: TransformerLMConfig | GPT2Config, size: GPT2Config) -> ModelConfig:
    """As wide inside as it was; each head with keys and values of its own."""
    shape: dict[str, Any] = {
        "d_model": size.d_model,
        "num_layers": size.num_layers,
        "num_heads": size.num_heads,
        "d_ff": round(config.feed_forward_size / config.d_model * size.d_model),
    }
    if isinstance(config, TransformerLMConfig):
        return replace(config, **shape, num_kv_heads=None)
    return replace(config, **shape)


def shares_by_context(config: ModelConfig, work: Workload) -> Bars:
    """The same model at increasing context lengths."""
    if isinstance(config, RecurrentConfig):
        longer: dict[int, ModelConfig] = dict.fromkeys(SENTENCES, config)
    else:
        longer = {seq: replace(config, context_length=seq) for seq in CONTEXTS}
    return {
        f"{seq:,}": shares(account(each, replace(work, seq=seq, source_seq=None)))
        for seq, each in longer.items()
    }


def _draw(title: str, panels: list[tuple[str, Bars]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")  # a file, no window
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(panels), figsize=(1.5 + 5.0 * len(panels), 4.6), squeeze=False, layout="constrained"
    )
    for axis, (heading, bars) in zip(axes[0], panels, strict=True):
        _stack(axis, bars)
        axis.set_title(heading, fontsize=10)
    handles, labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _stack(axis: Axes, bars: Bars) -> None:
    """Stacked bars, each with its percentage where there is room."""
    kinds = list(dict.fromkeys(kind for bar in bars.values() for kind in bar))
    bottom = [0.0] * len(bars)
    for kind in kinds:
        heights = [100 * bar.get(kind, 0.0) for bar in bars.values()]
        drawn = axis.bar(
            list(bars), heights, bottom=bottom, width=0.72, label=kind, color=_COLOURS.get(kind)
        )
        labels = [f"{height:.0f} %" if height >= 4 else "" for height in heights]
        ink = "black" if kind in _LIGHT else "white"
        axis.bar_label(drawn, labels, label_type="center", fontsize=8, color=ink)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axis.set_ylim(0, 100)
    axis.set_yticks(range(0, 101, 20), [f"{tick} %" for tick in range(0, 101, 20)])
    axis.spines[["top", "right"]].set_visible(False)
