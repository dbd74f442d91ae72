"""`trafo account MODEL`: parameters, FLOPs, memory and time; and `trafo account complexity`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from trafo.cli.account import complexity
from trafo.cli.account.models import parse_with_model
from trafo.cli.tokenizer.arguments import OptionalInt, OptionalPath, OptionalString
from trafo.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from trafo.account import Measurement, Workload
    from trafo.models import ModelConfig

_FOOTNOTE = """
measured: physical memory above what the process held before, freed memory returned at once
(MALLOC_MMAP_THRESHOLD_=65536); by default, the C library keeps some of it for later"""

OptionalNumber = Annotated[float | None, arg(metavar="FLOAT")]


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Count what a model costs: parameters, FLOPs, memory, time.

    trafo account MODEL [flags], where MODEL is gpt2 (unless given), gpt2-medium, gpt2-large,
    gpt2-xl, transformer-lm, encoder-decoder, recurrent, a YAML file: the fields of a model, or
    the config of a run; or a run, a Hugging Face folder, a GGUF or a llama2.c file. Each model has
    its own flags: `trafo account MODEL --help`.
    `trafo account complexity` measures how the time of layers grows with the sequence length.
    """

    phase: Literal["train", "prefill", "decode"] = "train"
    """a training step, prefill (the prompt), or decoding one token with the KV cache"""
    length: OptionalInt = None
    """tokens per sequence; None: the model's context length, or 64 if it has none"""
    source_length: OptionalInt = None
    """tokens per source sequence of an encoder-decoder; None: as many as in the target"""
    batch_size: int = 1
    """batch size (sequences)"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """data type of weights, activations and optimizer state"""
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """optimizer: its state takes memory, its update FLOPs"""
    accumulate: int = 1
    """gradient accumulation steps, each with a batch of batch_size"""
    memory: OptionalString = None
    """memory of the machine, such as 80GB: how large a batch fits?"""
    peak_flops: OptionalNumber = None
    """peak FLOP/s of the machine: how long does it take?"""
    utilisation: float = 1.0
    """model FLOPs utilisation (MFU): the share of peak_flops that is reached"""
    steps: int = 1
    """training steps (or prompts, or tokens) to estimate the time of"""
    products: bool = False
    """list every matrix product"""
    json: bool = False
    """print JSON instead of tables"""
    picture: OptionalPath = None
    """plot each part's share of the FLOPs into this file, .png or .svg"""
    measure: bool = False
    """run a training step and compare its peak memory; without MODEL, for five models"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """A model and the questions about it."""

    name: str | None
    """None: no MODEL was given"""
    config: ModelConfig
    ask: Questions


def parse(arguments: list[str], prog: str) -> Options | complexity.Options:
    """MODEL decides which flags exist."""
    name = arguments[0] if arguments and not arguments[0].startswith("-") else None
    require(name != "", "MODEL is empty", "give a name or a path")
    flags = arguments if name is None else arguments[1:]
    if name == "complexity":
        from trafo.config import parse_flags

        return parse_flags(complexity.Options, flags, prog=f"{prog} {name}")
    config, ask = parse_with_model(Questions, name or "gpt2", flags, prog)
    return Options(name=name, config=config, ask=ask)


def run(options: Options | complexity.Options) -> None:
    """Print one of the three: complexity, measurement, account."""
    picture = options.picture if isinstance(options, complexity.Options) else options.ask.picture
    _check_picture(picture)
    if isinstance(options, complexity.Options):
        complexity.run(options)
    elif options.ask.measure:
        _run_measure(options)
    else:
        _run_account(options)


def _run_measure(options: Options) -> None:
    """Predict and measure the given model, or five different ones."""
    from trafo.account.measurement import SHAPES, Shape, measure
    from trafo.runtime.console import show, show_json
    from trafo.runtime.progress import progress

    name, ask = options.name, options.ask
    shapes = SHAPES if name is None else [Shape(name, options.config, _workload(options))]
    measurements = []
    with progress("measuring training steps", total=len(shapes), unit="steps") as bar:
        for shape in shapes:
            measurements.append(measure(shape, ask.optimizer))
            bar.advance(1)
    if ask.json:
        show_json([asdict(each) | {"error": each.error} for each in measurements])
    else:
        show(_measurement_table(measurements), _FOOTNOTE)


def _measurement_table(measurements: Sequence[Measurement]) -> Table:
    from trafo.runtime.sizes import format_size
    from trafo.runtime.tables import plain_table

    table = plain_table("lrrr", ["training step", "predicted", "measured", "error"])
    for each in measurements:
        sizes = format_size(each.predicted), format_size(each.measured)
        table.add_row(each.name, *sizes, f"{100 * each.error:+.1f} %")
    return table


def _run_account(options: Options) -> None:
    from trafo.cli.account.answers import answer, tables, to_dict
    from trafo.runtime.console import say, show, show_json

    name, config, ask = options.name or "gpt2", options.config, options.ask
    work = _workload(options)
    answers = answer(name, config, work, ask)
    if ask.json:
        show_json(to_dict(answers))
    else:
        show(*tables(answers))
    if ask.picture is not None:
        from trafo.cli.account.pictures import draw_shares

        draw_shares(name, config, work, ask.picture)
        say(f"picture: {ask.picture}")


def _workload(options: Options) -> Workload:
    from trafo.account import Workload

    ask = options.ask
    own_length: int = getattr(options.config, "context_length", 64)
    return Workload(
        seq=own_length if ask.length is None else ask.length,
        source_seq=ask.source_length,
        batch_size=ask.batch_size,
        phase=ask.phase,
        dtype=ask.dtype,
    )


def _check_picture(path: Path | None) -> None:
    """Before anything is computed."""
    if path is None:
        return
    is_known = path.suffix in (".png", ".svg", ".pdf")
    require(is_known, f"cannot draw a {path.suffix or path.name!r}", "name it .png or .svg")
    require(path.parent.is_dir(), f"{path.parent}: no such folder")
