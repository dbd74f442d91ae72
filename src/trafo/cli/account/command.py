"""`trafo account MODEL`: parameters, FLOPs, memory and time, and `trafo account complexity`.

MODEL is a name; a YAML file: the model's fields with its `name` (transformer-lm unless it says
otherwise), or the config of a training run; or what holds a model, such as a run or a GGUF file.
Its fields are flags, by the same machinery as those of `trafo train`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trafo.cli.arguments import only
from trafo.config import load, parse_flags, read_yaml, to_tree
from trafo.errors import ConfigError, did_you_mean, require
from trafo.models import CONFIGS, PRESETS, ModelConfig
from trafo.runtime.console import plain_table, say, show, show_json
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_duration, format_size

if TYPE_CHECKING:
    from trafo.account import Workload

_FOOTNOTE = """
measured: physical memory above what the process held before, freed memory returned at once
(MALLOC_MMAP_THRESHOLD_=65536); by default, the C library keeps some of it for later"""
_DEFAULT_MODEL = "transformer-lm"

ModelOptions = tuple[str | None, ModelConfig, "Options"]


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
    length: int | None = None
    """tokens per sequence; None: the model's context length, or 64 if it has none"""
    source_length: int | None = None
    """tokens per source sequence of an encoder-decoder; None: as many as in the target"""
    batch_size: int = 1
    """batch size (sequences)"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """data type of weights, activations and optimizer state"""
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """optimizer: its state takes memory, its update FLOPs"""
    accumulate: int = 1
    """gradient accumulation steps, each with a batch of batch_size"""
    memory: str | None = None
    """memory of the machine, such as 80GB: how large a batch fits?"""
    peak_flops: float | None = None
    """peak FLOP/s of the machine: how long does it take?"""
    utilisation: float = 1.0
    """model FLOPs utilisation (MFU): the share of peak_flops that is reached"""
    steps: int = 1
    """training steps (or prompts, or tokens) to estimate the time of"""
    products: bool = False
    """list every matrix product"""
    json: bool = False
    """print JSON instead of tables"""
    picture: Path | None = None
    """plot each part's share of the FLOPs into this file, .png or .svg"""
    measure: bool = False
    """run a training step and compare its peak memory; without MODEL, for five models"""


@dataclass(frozen=True, kw_only=True)
class ComplexityOptions:
    """Time layers at several sequence lengths, and compare the growth with theory."""

    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    """sequence lengths in tokens"""
    d_model: int = 64
    """hidden size"""
    window: int = 64
    """window of restricted (sliding window) self-attention"""
    json: bool = False
    """print JSON instead of a table"""
    picture: Path | None = None
    """plot the times into this file, .png or .svg"""


def parse(arguments: list[str], prog: str) -> ModelOptions | ComplexityOptions:
    """Parse MODEL, which decides which flags exist, and whose name is None if it was not given."""
    name = arguments[0] if arguments and not arguments[0].startswith("-") else None
    require(name != "", "MODEL is empty", "give a name or a path")
    flags = arguments if name is None else arguments[1:]
    if name == "complexity":
        return parse_flags(ComplexityOptions, flags, prog=f"{prog} {name}")
    return name, *_parse_model_flags(name or "gpt2", flags, prog)


def _parse_model_flags(name: str, flags: list[str], prog: str) -> tuple[ModelConfig, Options]:
    """Parse the flags of a model beside those of `Options`."""
    values = _read_fields(Path(name)) if name.endswith((".yaml", ".yml")) else {"name": name}
    base = _find_model(str(values.pop("name", _DEFAULT_MODEL)))
    kind = type(base)
    both: type = make_dataclass(
        "Options",
        (),
        bases=(Options, kind),
        namespace={"__doc__": Options.__doc__},
        frozen=True,
        kw_only=True,
    )
    fields = to_tree(base) | values
    options: Any = load(both, fields, flags, where=name, prog=f"{prog} {name}")
    return only(kind, options), options


def _find_model(name: str) -> ModelConfig:
    if name in PRESETS:
        return PRESETS[name]
    if name in CONFIGS:
        return CONFIGS[name]()
    if Path(name).exists():
        from trafo.checkpoint.bundle import load_config

        return load_config(name)
    known = dict.fromkeys([*PRESETS, *CONFIGS])
    hint = did_you_mean(name, known, f"choose one of {', '.join(known)}, a YAML file or a run")
    raise ConfigError(f"unknown model {name!r}", hint=hint)


def _read_fields(path: Path) -> dict[str, Any]:
    """Read the fields in the file, or in a run's config those of its model."""
    values = read_yaml(path)
    name = str(values.get("architecture", _DEFAULT_MODEL))
    branch = "model" if name == _DEFAULT_MODEL else name.replace("-", "_")
    inner = values.get(branch, {})
    is_run = "architecture" in values or branch in values
    return {"name": name, **inner} if is_run and isinstance(inner, Mapping) else dict(values)


def run(options: ModelOptions | ComplexityOptions) -> None:
    """Print one of the three: complexity, measurement, account."""
    if isinstance(options, ComplexityOptions):
        _check_picture(options.picture)
        return _run_complexity(options)
    from trafo.account import Workload

    name, config, ask = options
    _check_picture(ask.picture)
    work = Workload(
        seq=(config.context_length or 64) if ask.length is None else ask.length,
        source_seq=ask.source_length,
        batch_size=ask.batch_size,
        phase=ask.phase,
        dtype=ask.dtype,
    )
    if ask.measure:
        return _run_measure(None if name is None else {name: (config, work)}, ask)
    return _run_account(name or "gpt2", config, work, ask)


def _run_account(name: str, config: ModelConfig, work: Workload, ask: Options) -> None:
    from trafo.cli.account.report import collect_numbers, make_tables

    numbers = collect_numbers(name, config, work, ask)
    if ask.json:
        show_json(numbers)
    else:
        show(*make_tables(numbers, work, ask))
    if ask.picture is not None:
        from trafo.cli.account.pictures import draw_shares

        draw_shares(name, config, work, ask.picture)
        say(f"picture: {ask.picture}")


def _run_measure(given: dict[str, tuple[ModelConfig, Workload]] | None, ask: Options) -> None:
    """Predict and measure the given model, or five different ones."""
    from trafo.account.measurement import EXAMPLES, measure

    examples, records = given or EXAMPLES, []
    with progress("measuring training steps", total=len(examples), unit="steps") as bar:
        for name, (config, work) in examples.items():
            found = measure(config, work, ask.optimizer)
            records.append({"name": name, **asdict(found), "error": found.error})
            bar.advance(1)
    columns: Columns = {
        "training step": lambda record: record["name"],
        "predicted": lambda record: format_size(record["predicted"]),
        "measured": lambda record: format_size(record["measured"]),
        "error": lambda record: f"{100 * record['error']:+.1f} %",
    }
    _show_records(records, columns, _FOOTNOTE, as_json=ask.json)


def _run_complexity(options: ComplexityOptions) -> None:
    """Time layers, and print how their time grows."""
    from trafo.account.complexity import measure_growth

    lengths = options.lengths
    growths = measure_growth(lengths, d_model=options.d_model, window=options.window)
    columns: Columns = {
        "layer": lambda record: record["layer"],
        "theory": lambda record: record["theory"],
        "expected": lambda record: f"n^{record['expected']:.0f}",
        "measured": lambda record: f"n^{record['exponent']:.2f}",
        f"at {lengths[0]:,}": lambda record: format_duration(record["seconds"][0]),
        f"at {lengths[-1]:,}": lambda record: format_duration(record["seconds"][-1]),
    }
    records = [asdict(growth) | {"exponent": growth.exponent} for growth in growths]
    _show_records(records, columns, as_json=options.json)
    if options.picture is not None:
        from trafo.cli.account.pictures import draw_growth

        draw_growth(growths, options.picture)
        say(f"picture: {options.picture}")


Record = dict[str, Any]
Columns = dict[str, Callable[[Record], str]]


def _show_records(
    records: Sequence[Record], columns: Columns, *footnotes: str, as_json: bool
) -> None:
    """Print records as JSON, or as a table with a formatter for each column."""
    if as_json:
        return show_json(records)
    table = plain_table("l" + "r" * (len(columns) - 1), list(columns))
    for record in records:
        table.add_row(*(cell(record) for cell in columns.values()))
    return show(table, *footnotes)


def _check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn before anything is computed."""
    if path is None:
        return
    is_known = path.suffix in (".png", ".svg", ".pdf")
    require(is_known, f"cannot draw a {path.suffix or path.name!r}", "name it .png or .svg")
    require(path.parent.is_dir(), f"{path.parent}: no such folder")
