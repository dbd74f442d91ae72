"""The report of `trafo account` on a model at a workload: numbers, and tables of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trafo.account import (
    Workload,
    account,
    find_largest_batch,
    predict_memory,
    predict_speed,
    predict_update,
)
from trafo.errors import require_at_least
from trafo.models import ModelConfig, model_name
from trafo.runtime.console import dim, format_percent, plain_table
from trafo.runtime.sizes import format_duration, format_flops, format_rate, format_size, parse_size

if TYPE_CHECKING:
    from trafo.cli.account.command import Options

Numbers = dict[str, Any]


def collect_numbers(name: str, config: ModelConfig, work: Workload, ask: Options) -> Numbers:
    """Collect what was asked for as plain numbers under plain names, for JSON and tables."""
    require_at_least(1, accumulate=ask.accumulate, steps=ask.steps)
    available = None if ask.memory is None else parse_size(ask.memory)
    require_at_least(1, memory=available)
    result, accumulating = account(config, work), ask.accumulate > 1
    kept: Counter[Any] = result.kept
    numbers: Numbers = {
        "name": name,
        "model": model_name(config),
        "config": asdict(config),
        "workload": asdict(work),
        "parameters": result.parameters,
        "flops": {"forward": result.forward_flops, "backward": result.backward_flops},
        "memory": asdict(predict_memory(result, ask.optimizer, accumulating=accumulating)),
        "parts": [
            asdict(part)
            | {"kept_bytes": kept[part.block, part.name]}
            | {"products": [asdict(p) | {"forward_flops": p.forward_flops} for p in part.products]}
            for part in result.parts
        ],
    }
    step = predict_update(ask.optimizer, result)
    if work.is_training:
        numbers["update"] = asdict(step)
    if available is not None:
        numbers["largest_batch"] = find_largest_batch(
            config, work, available, ask.optimizer, accumulating=accumulating
        )
    if ask.peak_flops is not None:
        time = predict_speed(
            result,
            peak_flops=ask.peak_flops,
            utilisation=ask.utilisation,
            steps=ask.steps,
            accumulation_steps=ask.accumulate,
            update_flops=step.flops if work.is_training else 0,
        )
        numbers["speed"] = asdict(time)
    return numbers


def make_tables(numbers: Numbers, work: Workload, ask: Options) -> list[RenderableType]:
    """Make a title, and tables of parts, of every matrix product if asked for, and of totals."""
    tokens = f"{work.seq:,} tokens"
    if "source_vocab_size" in numbers["config"]:
        tokens = f"{work.source:,} source and {work.seq:,} target tokens"
    about = f": {work.phase}, batch of {work.batch_size:,} x {tokens}, {work.dtype}"
    totals = plain_table("lrl")
    for name, value, remark in (*_memory_rows(numbers, ask), *_time_rows(numbers, ask)):
        totals.add_row(name, value, dim(remark))
    title = Text.assemble((numbers["name"], "bold"), (about, "dim"))
    products = [_products_table(numbers)] if ask.products else []
    return [title, _parts_table(numbers), *products, totals]


def _parts_table(numbers: Numbers) -> Table:
    titles = ["part", "parameters", "forward", "share", "backward", "kept"]
    columns = len(titles) if "update" in numbers else 4
    table = plain_table("l" + "r" * (columns - 1), titles[:columns])
    all_flops = numbers["flops"]["forward"]
    for (block, layers), parts in groupby(numbers["parts"], itemgetter("block", "layers")):
        if block:
            table.add_row(Text(f"{block} x {layers}", "bold"))
        for part in parts:
            cells = _cells(part, format_percent(part["forward_flops"], all_flops))
            if any(cells):
                table.add_row("  " * bool(block) + part["name"], *cells[: columns - 1])
    total = numbers | {
        "forward_flops": all_flops,
        "backward_flops": numbers["flops"]["backward"],
        "kept_bytes": numbers["memory"]["activations"],
    }
    table.add_row("total", *_cells(total, "")[: columns - 1], style="bold")
    return table


def _cells(costs: Numbers, share: str) -> list[str]:
    """Format parameters, FLOPs and memory, and nothing where there are none."""
    return [
        f"{costs['parameters']:,}" if costs["parameters"] else "",
        format_flops(costs["forward_flops"]) if costs["forward_flops"] else "",
        share if costs["forward_flops"] else "",
        format_flops(costs["backward_flops"]) if costs["backward_flops"] else "",
        format_size(costs["kept_bytes"]) if costs["kept_bytes"] else "",
    ]


def _products_table(numbers: Numbers) -> Table:
    table = plain_table("lrrrr", ["matrix product", "m x n x p", "times", "forward", "share"])
    for part in numbers["parts"]:
        for product in part["products"]:
            flops = part["layers"] * product["forward_flops"]
            table.add_row(
                f"{part['name']}: {product['name']}",
                "{m} x {n} x {p}".format(**product),
                f"{part['layers'] * product['times']:,}",
                format_flops(flops),
                format_percent(flops, numbers["flops"]["forward"]),
            )
    return table


def _memory_rows(numbers: Numbers, ask: Options) -> Iterator[tuple[str, str, str]]:
    sizes = {name: format_size(n) for name, n in numbers["memory"].items() if name != "peak_at"}
    yield "parameters", sizes["parameters"], f"{numbers['parameters']:,}"
    if "update" not in numbers:
        yield "cache", sizes["cache"], "KV cache, or recurrent state"
        yield "peak memory", sizes["peak"], ""
    else:
        flops = numbers["update"]["flops"]
        each = f"{flops / numbers['parameters']:,.0f} FLOP per parameter"
        yield "gradients", sizes["gradients"], ""
        yield "optimizer state", sizes["optimizer_state"], ask.optimizer
        yield "activations", sizes["activations"], "kept for the backward pass"
        yield "peak memory", sizes["peak"], f"during {numbers['memory']['peak_at']}"
        yield f"{ask.optimizer} update", format_flops(flops), each
    if ask.memory is not None:
        batch = numbers["largest_batch"]
        remark = "sequences" if batch else "not even one sequence fits"
        yield f"largest batch in {format_size(parse_size(ask.memory))}", f"{batch:,}", remark


def _time_rows(numbers: Numbers, ask: Options) -> Iterator[tuple[str, str, str]]:
    if ask.peak_flops is None:
        return
    time = numbers["speed"]
    at = f"at {100 * ask.utilisation:g} % of {format_flops(ask.peak_flops)}/s"
    yield "one step", format_duration(time["seconds_per_step"]), at
    yield "speed", format_rate(time["tokens_per_second"], "tokens"), ""
    if ask.steps > 1:
        days, total = time["total_seconds"] / 86_400, format_duration(time["total_seconds"])
        yield f"{ask.steps:,} steps", f"{days:,.0f} days" if days > 100 else total, ""
