"""`Report` -> tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trafo.account.account import Account
from trafo.account.numbers import format_days, format_flops, format_share
from trafo.account.parts import Part
from trafo.account.passes import has_source
from trafo.account.report import Report
from trafo.runtime.sizes import format_duration, format_size
from trafo.runtime.tables import dim, plain_table


def render(full: Report, *, products: bool = False) -> list[RenderableType]:
    """Title, parts, optionally every matrix product, and totals."""
    parts: list[RenderableType] = [_title(full), _parts(full)]
    if products:
        parts.append(_products(full))
    return [*parts, _answers(full)]


def _title(full: Report) -> Text:
    work = full.account.work
    tokens = f"{work.seq:,} tokens"
    if has_source(full.account.config):
        tokens = f"{work.source:,} source and {work.seq:,} target tokens"
    about = f": {work.phase}, batch of {work.batch_size:,} x {tokens}, {work.dtype}"
    return Text.assemble((full.name, "bold"), (about, "dim"))


def _parts(full: Report) -> Table:
    result, training = full.account, full.account.work.is_training
    head = ["part", "parameters", "forward", "share", *(["backward", "kept"] if training else [])]
    table = plain_table("l" + "r" * (len(head) - 1), head)
    for block, parts in groupby(result.parts, key=lambda part: part.block):
        if block:
            table.add_row(Text(f"{block} x {result.layers[block]}", "bold"))
        for part in parts:
            if cells := _cells(part, result, training):
                table.add_row("  " * bool(block) + part.name, *cells)
    total = [_count(result.parameters), format_flops(result.forward_flops), ""]
    if training:
        total += [format_flops(result.backward_flops), format_size(result.kept_bytes)]
    table.add_row("total", *total, style="bold")
    return table


def _cells(part: Part, result: Account, training: bool) -> list[str]:
    """Nothing for a part that costs nothing worth a line."""
    if not (part.parameters or part.forward_flops or part.kept_bytes):
        return []
    cells = [
        _count(part.parameters),
        format_flops(part.forward_flops) if part.forward_flops else "",
        format_share(part.forward_flops, result.forward_flops),
    ]
    if training:
        cells.append(format_flops(part.backward_flops) if part.backward_flops else "")
        cells.append(format_size(part.kept_bytes) if part.kept_bytes else "")
    return cells


def _products(full: Report) -> Table:
    result = full.account
    table = plain_table("lrrrr", ["matrix product", "m x n x p", "times", "forward", "share"])
    for part in result.parts:
        for product in part.products:
            flops = part.layers * product.forward_flops
            table.add_row(
                f"{part.name}: {product.name}",
                f"{product.m} x {product.n} x {product.p}",
                _count(part.layers * product.times),
                format_flops(flops),
                format_share(flops, result.forward_flops),
            )
    return table


def _answers(full: Report) -> Table:
    table = plain_table("lrl")
    for name, value, remark in (
        *_memory_rows(full),
        *_update_rows(full),
        *_batch_rows(full),
        *_time_rows(full),
    ):
        table.add_row(name, value, dim(remark))
    return table


Row = tuple[str, str, str]


def _memory_rows(full: Report) -> Iterator[Row]:
    parts, training = full.memory, full.account.work.is_training
    yield "parameters", format_size(parts.parameters), f"{full.account.parameters:,}"
    if training:
        yield "gradients", format_size(parts.gradients), ""
        yield "optimizer state", format_size(parts.optimizer_state), full.circumstances.optimizer
        yield "activations", format_size(parts.activations), "kept for the backward pass"
    else:
        yield "cache", format_size(parts.cache), "KV cache, or recurrent state"
    why = f"during {parts.peak_at}" if training else ""
    yield "peak memory", format_size(parts.peak), why


def _update_rows(full: Report) -> Iterator[Row]:
    if full.account.work.is_training:
        each = full.update.flops / full.account.parameters
        name = f"{full.circumstances.optimizer} update"
        yield name, format_flops(full.update.flops), f"{each:,.0f} FLOP per parameter"


def _batch_rows(full: Report) -> Iterator[Row]:
    if full.largest_batch is None or full.circumstances.memory_bytes is None:
        return
    available = format_size(full.circumstances.memory_bytes)
    if full.largest_batch:
        yield f"largest batch in {available}", f"{full.largest_batch:,}", "sequences"
    else:
        yield f"largest batch in {available}", "0", "not even one sequence fits"


def _time_rows(full: Report) -> Iterator[Row]:
    if full.speed is None or full.circumstances.peak_flops is None:
        return
    about = full.circumstances
    at = f"at {100 * about.utilisation:g} % of {format_flops(about.peak_flops or 0)}/s"
    yield "one step", format_duration(full.speed.seconds_per_step), at
    yield "speed", f"{full.speed.tokens_per_second:,.0f}", "tokens/s"
    if about.steps > 1:
        total = full.speed.total_seconds
        in_words = format_days(total) if total > 100 * 86_400 else format_duration(total)
        yield f"{about.steps:,} steps", in_words, ""


def _count(number: int) -> str:
    return f"{number:,}" if number else ""
