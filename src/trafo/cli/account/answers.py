"""What `trafo account` says about a model at a workload: numbers, and tables of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trafo.account import Account, Memory, Part, Speed, Update, Workload, account
from trafo.account.memory import largest_batch, memory
from trafo.account.optimizer import update
from trafo.account.passes import has_source
from trafo.account.speed import speed
from trafo.errors import require_at_least
from trafo.models import ModelConfig, model_name
from trafo.runtime.sizes import format_duration, format_size, parse_size
from trafo.runtime.tables import dim, percent, plain_table

if TYPE_CHECKING:
    from trafo.cli.account.command import Questions

_UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The account of a model, and what follows from it for the machine and the run."""

    name: str
    ask: Questions
    account: Account
    memory: Memory
    update: Update
    largest_batch: int | None
    speed: Speed | None


def answer(name: str, config: ModelConfig, work: Workload, ask: Questions) -> Answers:
    """Account for a model: memory, update, largest batch and speed."""
    require_at_least(1, accumulate=ask.accumulate, steps=ask.steps)
    available = None if ask.memory is None else parse_size(ask.memory)
    require_at_least(1, memory=available)
    result, accumulating = account(config, work), ask.accumulate > 1
    step = update(ask.optimizer, result)
    batch = time = None
    if available is not None:
        batch = largest_batch(config, work, available, ask.optimizer, accumulating=accumulating)
    if ask.peak_flops is not None:
        time = speed(
            result,
            peak_flops=ask.peak_flops,
            utilisation=ask.utilisation,
            steps=ask.steps,
            accumulation_steps=ask.accumulate,
            update_flops=step.flops if work.is_training else 0,
        )
    return Answers(
        name=name,
        ask=ask,
        account=result,
        memory=memory(result, ask.optimizer, accumulating=accumulating),
        update=step,
        largest_batch=batch,
        speed=time,
    )


def to_dict(answers: Answers) -> dict[str, Any]:
    """Plain numbers under plain names, for JSON; what was not asked for is left out."""
    result = answers.account
    numbers: dict[str, Any] = {
        "name": answers.name,
        "model": model_name(result.config),
        "config": asdict(result.config),
        "workload": asdict(result.work),
        "parameters": result.parameters,
        "flops": {"forward": result.forward_flops, "backward": result.backward_flops},
        "memory": asdict(answers.memory),
        "parts": [_row(part, result.kept[part.place]) for part in result.parts],
        "update": asdict(answers.update) if result.work.is_training else None,
        "largest_batch": answers.largest_batch,
        "speed": None if answers.speed is None else asdict(answers.speed),
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _row(part: Part, kept_bytes: int) -> dict[str, Any]:
    """All layers together, and the matrix products of one of them."""
    return {
        "block": part.place.block,
        "name": part.place.part,
        "layers": part.layers,
        "parameters": part.parameters,
        "forward_flops": part.forward_flops,
        "backward_flops": part.backward_flops,
        "kept_bytes": kept_bytes,
        "products": [
            asdict(each) | {"forward_flops": each.forward_flops} for each in part.products
        ],
    }


def tables(answers: Answers) -> list[RenderableType]:
    """Title, parts, every matrix product if asked for, and totals."""
    last = plain_table("lrl")
    for name, value, remark in (*_memory_rows(answers), *_time_rows(answers)):
        last.add_row(name, value, dim(remark))
    products = [_products(answers.account)] if answers.ask.products else []
    return [_title(answers), _parts(answers.account), *products, last]


def _title(answers: Answers) -> Text:
    work = answers.account.work
    tokens = f"{work.seq:,} tokens"
    if has_source(answers.account.config):
        tokens = f"{work.source:,} source and {work.seq:,} target tokens"
    about = f": {work.phase}, batch of {work.batch_size:,} x {tokens}, {work.dtype}"
    return Text.assemble((answers.name, "bold"), (about, "dim"))


def _parts(result: Account) -> Table:
    titles = ["part", "parameters", "forward", "share", "backward", "kept"]
    columns = len(titles) if result.work.is_training else 4
    table = plain_table("l" + "r" * (columns - 1), titles[:columns])
    for block, parts in groupby(result.parts, key=lambda part: part.place.block):
        if block:
            table.add_row(Text(f"{block} x {result.layers[block]}", "bold"))
        for part in parts:
            cells = _cells(part, result.kept[part.place], result.forward_flops)
            if any(cells):
                table.add_row("  " * bool(block) + part.place.part, *cells[: columns - 1])
    table.add_row("total", *_cells(result, result.kept_bytes)[: columns - 1], style="bold")
    return table


def _cells(costs: Part | Account, kept_bytes: int, all_flops: int = 0) -> list[str]:
    """Parameters, FLOPs and memory; nothing where there are none."""
    return [
        f"{costs.parameters:,}" if costs.parameters else "",
        format_flops(costs.forward_flops),
        percent(costs.forward_flops, all_flops) if all_flops and costs.forward_flops else "",
        format_flops(costs.backward_flops),
        format_size(kept_bytes) if kept_bytes else "",
    ]


def _products(result: Account) -> Table:
    table = plain_table("lrrrr", ["matrix product", "m x n x p", "times", "forward", "share"])
    for part in result.parts:
        for product in part.products:
            flops = part.layers * product.forward_flops
            table.add_row(
                f"{part.place.part}: {product.name}",
                f"{product.m} x {product.n} x {product.p}",
                f"{part.layers * product.times:,}",
                format_flops(flops),
                percent(flops, result.forward_flops),
            )
    return table


def _memory_rows(answers: Answers) -> Iterator[tuple[str, str, str]]:
    parts, result, optimizer = answers.memory, answers.account, answers.ask.optimizer
    yield "parameters", format_size(parts.parameters), f"{result.parameters:,}"
    if not result.work.is_training:
        yield "cache", format_size(parts.cache), "KV cache, or recurrent state"
        yield "peak memory", format_size(parts.peak), ""
    else:
        each = answers.update.flops / result.parameters
        yield "gradients", format_size(parts.gradients), ""
        yield "optimizer state", format_size(parts.optimizer_state), optimizer
        yield "activations", format_size(parts.activations), "kept for the backward pass"
        yield "peak memory", format_size(parts.peak), f"during {parts.peak_at}"
        yield (
            f"{optimizer} update",
            format_flops(answers.update.flops),
            f"{each:,.0f} FLOP per parameter",
        )
    if answers.ask.memory is not None and answers.largest_batch is not None:
        name = f"largest batch in {format_size(parse_size(answers.ask.memory))}"
        remark = "sequences" if answers.largest_batch else "not even one sequence fits"
        yield name, f"{answers.largest_batch:,}", remark


def _time_rows(answers: Answers) -> Iterator[tuple[str, str, str]]:
    ask, time = answers.ask, answers.speed
    if time is None or ask.peak_flops is None:
        return
    at = f"at {100 * ask.utilisation:g} % of {format_flops(ask.peak_flops)}/s"
    yield "one step", format_duration(time.seconds_per_step), at
    yield "speed", f"{time.tokens_per_second:,.0f}", "tokens/s"
    if ask.steps > 1:
        days, total = time.total_seconds / 86_400, format_duration(time.total_seconds)
        yield f"{ask.steps:,} steps", f"{days:,.0f} days" if days > 100 else total, ""


def format_flops(flops: float) -> str:
    """Four figures and a unit: `29.78 GFLOP`, `1.386 PFLOP`; empty for zero."""
    value, power = float(flops), 0
    while value >= 999.95 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    digits = 3 if value < 9.9995 else 2 if value < 99.995 else 1
    return f"{value:.{digits if power else 0}f} {_UNITS[power]}FLOP" if flops else ""
