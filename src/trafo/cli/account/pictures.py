"""Pictures of an account: shares of the FLOPs as stacked bars, and growth with length as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trafo.account import Workload, account
from trafo.account.complexity import Growth, fit_power_law
from trafo.models import GPT2_PRESETS, GPT2Config, ModelConfig, RecurrentConfig, TransformerLMConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Bars = Mapping[str, Mapping[str, float]]


def draw_shares(name: str, config: ModelConfig, work: Workload, path: Path) -> None:
    """Each part's share of the FLOPs by context length, and by size in a language model."""
    from matplotlib.figure import Figure

    panels = {"by context length": _by_context(config, work)}
    if isinstance(config, TransformerLMConfig | GPT2Config):
        panels = {f"by size, {work.seq:,} tokens": _by_size(config, work)} | panels
    figure = Figure(figsize=(1.5 + 5.0 * len(panels), 4.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (heading, bars) in zip(axes, panels.items(), strict=True):
        _stack(axis, bars)
        axis.set_title(heading, fontsize=10)
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)
    figure.suptitle(f"{name}: where the FLOPs of a forward pass go")
    figure.savefig(path, dpi=150)


def _by_size(config: TransformerLMConfig | GPT2Config, work: Workload) -> Bars:
    """The model at the widths and depths of the four GPT-2 sizes, as wide inside as it was."""
    bars = {}
    for name, size in GPT2_PRESETS.items():
        shape: Any = {
            field: getattr(size, field) for field in ("num_layers", "num_heads", "d_model")
        }
        shape["d_ff"] = round(config.feed_forward_size / config.d_model * size.d_model)
        if isinstance(config, TransformerLMConfig):
            shape["num_kv_heads"] = None
        bars[name] = _shares(replace(config, **shape), work)
    return bars


def _by_context(config: ModelConfig, work: Workload) -> Bars:
    """The same model at increasing context lengths."""
    if isinstance(config, RecurrentConfig):  # one position after the other, even in a dry run
        configs: dict[int, ModelConfig] = dict.fromkeys((4, 8, 16, 32, 64), config)
    else:
        contexts = (256, 1024, 4096, 16_384, 65_536)
        configs = {seq: replace(config, context_length=seq) for seq in contexts}
    return {
        f"{seq:,}": _shares(each, replace(work, seq=seq, source_seq=None))
        for seq, each in configs.items()
    }


def _shares(config: ModelConfig, work: Workload) -> dict[str, float]:
    """Each kind of part and its share of the FLOPs of a forward pass."""
    result = account(config, work)
    flops: Counter[str] = Counter()
    for part in result.parts:
        flops[part.name] += part.forward_flops
    return {name: count / result.forward_flops for name, count in flops.items() if count}


def _stack(axis: Axes, bars: Bars) -> None:
    """Stacked bars, each with its percentage where there is room."""
    kinds = list(dict.fromkeys(kind for bar in bars.values() for kind in bar))
    bottom = [0.0] * len(bars)
    for kind in kinds:
        heights = [100 * bar.get(kind, 0.0) for bar in bars.values()]
        drawn = axis.bar(list(bars), heights, bottom=bottom, width=0.72, label=kind)
        labels = [f"{height:.0f} %" if height >= 4 else "" for height in heights]
        axis.bar_label(drawn, labels, label_type="center", fontsize=8, color="white")
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axis.set_ylim(0, 100)
    axis.set_yticks(range(0, 101, 20), [f"{tick} %" for tick in range(0, 101, 20)])
    axis.spines[["top", "right"]].set_visible(False)


def draw_growth(growths: Sequence[Growth], path: Path) -> None:
    """Measured times as points, the fitted power laws as lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axis = figure.subplots()
    for growth in growths:
        lengths = growth.lengths[growth.fitted]
        power, factor = fit_power_law(lengths, growth.seconds[growth.fitted])
        line = [factor * n**power for n in lengths]
        label = f"{growth.layer}: {growth.theory}, measured n^{growth.exponent:.2f}"
        points = axis.plot(growth.lengths, growth.seconds, "o", markersize=5)[0]
        axis.plot(lengths, line, "-", color=points.get_color(), label=label)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(growths[0].lengths, [f"{n:,}" for n in growths[0].lengths])
    axis.set_xlabel("tokens in the sequence")
    axis.set_ylabel("seconds of one forward pass")
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
