"""`trafo demo`: from text to a trained model, on text that every Python has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from trafo.config import build, load
from trafo.runtime.console import format_command, show
from trafo.runtime.sizes import format_duration, format_size

if TYPE_CHECKING:
    from trafo.training.config import TrainConfig

_PROMPTS = ("def", "class", "The")
_PROMPT = "def parse("
_STEPS = 4
_LOOK_AT, _PROMPT_WORDS = 100_000, 3  # of a user's own text: characters; words of a prompt


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train a small language model from scratch: text, tokenizer, tokens, training, samples."""

    out: Path = Path("runs/demo")
    """output folder"""
    text: Path | None = None
    """your own text, instead of the source code and documentation of Python's library"""
    config: Path | None = None
    """config file; None: sizes are chosen to suit the text and the machine"""
    budget: str = "4m"
    """wall-clock budget of training"""
    threads: int | None = None
    """CPU threads; None: the fastest number, found by timing the steps"""


class Steps:
    """Numbers and times the steps, and prints a line for each."""

    def __init__(self) -> None:
        self._done = 0
        self._last = perf_counter()

    def done(self, name: str, amount: str, where: str | Path) -> None:
        """Print the line of the step that ends here."""
        now = perf_counter()
        self._done += 1
        duration = format_duration(now - self._last)
        show(f"{self._done}/{_STEPS}  {name:<10}{amount:>19}{duration:>9}   {where}")
        self._last = now


def run(options: Options) -> int:
    """Run all steps; finished ones are not repeated."""
    from trafo.cli.train import finish
    from trafo.data.prepare import prepare
    from trafo.training.run import LATEST, RUNS, Run
    from trafo.training.start import resume, train

    steps = Steps()
    text = _text(options)
    steps.done("text", format_size(text.stat().st_size), text)

    config = _config(options, text)
    dataset = prepare(config.text, config.data, config.language_model.vocab_size)
    num_ids = len(dataset.training) + len(dataset.validation)
    steps.done("tokenizer", f"{dataset.tokenizer.vocab_size:,} tokens", config.data.cache)
    steps.done("tokens", f"{num_ids:,}", f"{text.stat().st_size / num_ids:.2f} bytes per token")

    model = Run(options.out / "model")
    code = finish(resume(model.path) if model.config_file.exists() else train(config))
    if code:
        return code
    served = model.path
    if options.out.parent == RUNS:
        model.mark_latest(RUNS)
        served = RUNS / LATEST
    steps.done(
        "model",
        f"{config.language_model.num_layers} layers of {config.language_model.d_model}",
        model.path,
    )
    prompts = _PROMPTS if options.text is None else _prompts_from(text)
    _show_samples(model.path, prompts)
    show("\nWhat next:")
    for line in _next(model.path, served, text, _PROMPT if options.text is None else prompts[0]):
        show(line)
    return 0


def _text(options: Options) -> Path:
    from trafo.data.corpora import build_corpus

    if options.text is None:
        return build_corpus(options.out)
    from trafo.tokenizer import open_inputs

    path = open_inputs(options.text).files[0].path
    assert isinstance(path, Path)  # not a URL: --text is a path
    return path


def _config(options: Options, text: Path) -> TrainConfig:
    from trafo.training.auto.resolve import print_settings, resolve_config
    from trafo.training.config import TrainConfig

    overrides = {
        "text": (str(text),),
        "out": options.out / "model",
        "budget": options.budget,
        "data": {"cache": options.out / "cache"},
        "machine": {} if options.threads is None else {"threads": options.threads},
    }
    if options.config is not None:
        return build(TrainConfig, overrides, load(TrainConfig, options.config))
    config = resolve_config(overrides)
    print_settings(config)
    return config


def _prompts_from(text: Path) -> list[str]:
    """The first words of a few lines, spread over the beginning of the text."""
    from trafo.tokenizer import open_inputs

    lines = open_inputs(text).first_characters(_LOOK_AT).splitlines()
    long = [words for line in lines if len(words := line.split()) > _PROMPT_WORDS] or [["The"]]
    chosen = long[:: -(-len(long) // len(_PROMPTS))]
    return list(dict.fromkeys(" ".join(words[:_PROMPT_WORDS]) for words in chosen))


def _show_samples(run: Path, prompts: Sequence[str]) -> None:
    """Samples from the model, for a few typical prompts."""
    from trafo.checkpoint.bundle import load_bundle
    from trafo.generate import GenerationConfig, generate

    bundle = load_bundle(run).require_language_model()
    config = GenerationConfig(max_new_tokens=80, temperature=0.7, top_p=0.95)
    show("\nThe model writes:")
    found = generate(bundle.model, bundle.tokenizer, prompts, config)
    for prompt, done in zip(prompts, found, strict=True):
        lines = (prompt + done.text).rstrip().splitlines()
        show("\n" + "\n".join("    " + line for line in lines))


def _next(run: Path, served: Path, text: Path, prompt: str) -> Iterator[str]:
    """Commands that can be copied as they are."""
    advice = {
        "generate text from your own prompt": format_command(
            "generate", run, "--prompt", prompt, "--temperature", "0.8"
        ),
        "train for ten more minutes": format_command("resume", run, "--budget", "10m"),
        "see how text is split into tokens": format_command(
            "tokenizer", "report", run / "tokenizer", text, "--show", "600"
        ),
        "serve it: OpenAI's HTTP API, and a page to look inside": format_command("serve", served),
    }
    for why, line in advice.items():
        yield f"  {why}"
        yield f"    {line}"
