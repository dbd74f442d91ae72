"""`trafo account MODEL`: parameters, FLOPs, memory and time; and `trafo account complexity`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from trafo.cli.account.switches import Switches
from trafo.cli.tokenizer.arguments import OptionalInt, OptionalPath, OptionalString
from trafo.errors import ConfigError

if TYPE_CHECKING:
    from trafo.account import Workload
    from trafo.account.report import Circumstances
    from trafo.models import ModelConfig

ModelName = Annotated[
    Positional[str | None], arg(metavar="[MODEL]", help_behavior_hint="(default: gpt2)")
]
OptionalNumber = Annotated[float | None, arg(metavar="FLOAT")]
Lengths = Annotated[
    tuple[int, ...],
    arg(metavar="INT ...", help_behavior_hint="(default: 256 512 1024 2048 4096)"),
]
COMPLEXITY = "complexity"


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What can be asked about any model."""

    model: ModelName = None
    """what to account for"""
    phase: Literal["train", "prefill", "decode"] = "train"
    """a training step, reading a prompt, or writing one token"""
    batch_size: int = 1
    """rows"""
    source_length: OptionalInt = None
    """tokens of the source of an encoder-decoder, if not as many as of the target"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """in which all numbers are stored"""
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """what updates the weights"""
    accumulation_steps: int = 1
    """batches whose gradients are added up before an update"""
    memory: OptionalString = None
    """what there is, like 80GB: how large a batch fits?"""
    peak_flops: OptionalNumber = None
    """operations a second that the machine can do at best: how long does it take?"""
    utilisation: float = 1.0
    """the share of them that is reached"""
    steps: int = 1
    """how many training steps (or passes, or tokens)"""
    products: bool = False
    """list every matrix product"""
    json: bool = False
    """print everything as JSON"""
    picture: OptionalPath = None
    """draw the shares of the parts (or the growth) into this file, .png or .svg"""
    measure: bool = False
    """run a training step and compare its memory; without MODEL, of five shapes"""
    lengths: Lengths = ()
    """of sequences, for complexity"""


@dataclass(frozen=True, kw_only=True)
class Options(Switches, Questions):
    """Say what a model costs, and where.

    MODEL is gpt2, gpt2-medium, gpt2-large, gpt2-xl, transformer-lm, encoder-decoder, recurrent,
    or a YAML file of its fields; or `complexity`, to measure how layers grow with the length.
    """


def run(options: Options) -> None:
    """One of three: growth, measurement, account."""
    if options.lengths and options.model != COMPLEXITY:
        raise ConfigError("--lengths is for `trafo account complexity`", hint="leave it out")
    _check_picture(options.picture)
    if options.model == COMPLEXITY:
        from trafo.cli.account.complexity import run_complexity

        run_complexity(options)
    elif options.measure:
        from trafo.cli.account.measuring import run_measure

        run_measure(options)
    else:
        _run_account(options)


def _run_account(options: Options) -> None:
    from trafo.account.render import render
    from trafo.account.report import report, to_dict
    from trafo.runtime.console import show

    name, config, work = asked(options)
    full = report(name, config, work, _circumstances(options))
    if options.json:
        show_json(to_dict(full))
    else:
        show(*render(full, products=options.products))
    if options.picture is not None:
        from trafo.account.picture import draw_shares
        from trafo.runtime.console import say

        draw_shares(name, config, work, options.picture)
        say(f"picture: {options.picture}")


def asked(options: Options) -> tuple[str, ModelConfig, Workload]:
    """The model with its switches, and what it is to do."""
    from trafo.account import Workload
    from trafo.cli.account.models import find_config

    name = options.model or "gpt2"
    config = find_config(name, options.given())
    default_length = getattr(config, "context_length", 256)
    work = Workload(
        seq=default_length if options.context_length is None else options.context_length,
        source_seq=options.source_length,
        batch_size=options.batch_size,
        phase=options.phase,
        dtype=options.dtype,
    )
    return name, config, work


def _circumstances(options: Options) -> Circumstances:
    from trafo.account.report import Circumstances
    from trafo.runtime.sizes import parse_size

    return Circumstances(
        optimizer=options.optimizer,
        accumulation_steps=options.accumulation_steps,
        memory_bytes=None if options.memory is None else parse_size(options.memory),
        peak_flops=options.peak_flops,
        utilisation=options.utilisation,
        steps=options.steps,
    )


def show_json(content: Any) -> None:
    import json

    from trafo.runtime.console import show

    show(json.dumps(content, indent=2, ensure_ascii=False))


def _check_picture(path: Path | None) -> None:
    """Before anything is computed."""
    if path is None:
        return
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(
            f"cannot draw a {path.suffix or path.name!r}", hint="name it .png or .svg"
        )
    if not path.parent.is_dir():
        raise ConfigError("there is no such folder", where=str(path.parent))
