"""`trafo account MODEL`: parameters, FLOPs, memory and time; and `trafo account complexity`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from trafo.cli.account.models import parse_with_model
from trafo.cli.arguments import OptionalFloat, OptionalInt, OptionalPath, OptionalString
from trafo.config import parse_flags
from trafo.errors import require
from trafo.runtime.console import plain_table, say, show, show_json
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_duration, format_size

if TYPE_CHECKING:
    from trafo.account import Workload
    from trafo.models import ModelConfig

_FOOTNOTE = """
measured: physical memory above what the process held before, freed memory returned at once
(MALLOC_MMAP_THRESHOLD_=65536); by default, the C library keeps some of it for later"""

Asked = tuple[str | None, "ModelConfig", "Options"]
Lengths = Annotated[tuple[int, ...], arg(metavar="INT ...")]


@dataclass(frozen=True, kw_only=True)
class Options:
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
    peak_flops: OptionalFloat = None
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
class ComplexityOptions:
    """Time layers at several sequence lengths, and compare the growth with theory."""

    lengths: Lengths = (256, 512, 1024, 2048, 4096)
    """sequence lengths in tokens"""
    d_model: int = 64
    """hidden size"""
    window: int = 64
    """window of restricted (sliding window) self-attention"""
    json: bool = False
    """print JSON instead of a table"""
    picture: OptionalPath = None
    """plot the times into this file, .png or .svg"""


def parse(arguments: list[str], prog: str) -> Asked | ComplexityOptions:
    """MODEL decides which flags exist; the name in the result is None if it was not given."""
    name = arguments[0] if arguments and not arguments[0].startswith("-") else None
    require(name != "", "MODEL is empty", "give a name or a path")
    flags = arguments if name is None else arguments[1:]
    if name == "complexity":
        return parse_flags(ComplexityOptions, flags, prog=f"{prog} {name}")
    config, ask = parse_with_model(Options, name or "gpt2", flags, prog)
    return name, config, ask


def run(options: Asked | ComplexityOptions) -> None:
    """Print one of the three: complexity, measurement, account."""
    if isinstance(options, ComplexityOptions):
        _check_picture(options.picture)
        return _run_complexity(options)
    name, config, ask = options
    _check_picture(ask.picture)
    work = _workload(config, ask)
    if not ask.measure:
        return _run_account(name or "gpt2", config, work, ask)
    return _run_measure(None if name is None else {name: (config, work)}, ask)


def _run_measure(given: dict[str, tuple[ModelConfig, Workload]] | None, ask: Options) -> None:
    """Predict and measure the given model, or five different ones."""
    from trafo.account.measurement import EXAMPLES, measure

    examples, found = given or EXAMPLES, {}
    with progress("measuring training steps", total=len(examples), unit="steps") as bar:
        for name, (config, work) in examples.items():
            found[name] = measure(config, work, ask.optimizer)
            bar.advance(1)
    if ask.json:
        return show_json([{"name": n, **asdict(m), "error": m.error} for n, m in found.items()])
    table = plain_table("lrrr", ["training step", "predicted", "measured", "error"])
    for name, each in found.items():
        sizes = format_size(each.predicted), format_size(each.measured)
        table.add_row(name, *sizes, f"{100 * each.error:+.1f} %")
    return show(table, _FOOTNOTE)


def _run_account(name: str, config: ModelConfig, work: Workload, ask: Options) -> None:
    from trafo.cli.account.answers import answers, tables

    numbers = answers(name, config, work, ask)
    if ask.json:
        show_json(numbers)
    else:
        show(*tables(numbers, work, ask))
    if ask.picture is not None:
        from trafo.cli.account.pictures import draw_shares

        draw_shares(name, config, work, ask.picture)
        say(f"picture: {ask.picture}")


def _run_complexity(options: ComplexityOptions) -> None:
    """Time layers, and print how their time grows."""
    from trafo.account.growth import measure_growth

    growths = measure_growth(options.lengths, d_model=options.d_model, window=options.window)
    if options.json:
        show_json([asdict(growth) | {"exponent": growth.exponent} for growth in growths])
    else:
        ends = [f"at {options.lengths[i]:,}" for i in (0, -1)]
        table = plain_table("lrrrrr", ["layer", "theory", "expected", "measured", *ends])
        for each in growths:
            powers = f"n^{each.expected:.0f}", f"n^{each.exponent:.2f}"
            times = (format_duration(each.seconds[i]) for i in (0, -1))
            table.add_row(each.layer, each.theory, *powers, *times)
        show(table)
    if options.picture is not None:
        from trafo.cli.account.pictures import draw_growth

        draw_growth(growths, options.picture)
        say(f"picture: {options.picture}")


def _workload(config: ModelConfig, ask: Options) -> Workload:
    from trafo.account import Workload

    return Workload(
        seq=getattr(config, "context_length", 64) if ask.length is None else ask.length,
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
