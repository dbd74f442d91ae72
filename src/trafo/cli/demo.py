"""`trafo demo`: the main job, on a corpus that is already on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from trafo.cli.tokenizer.arguments import OptionalPath
from trafo.cli.tokenizer.commands import command


@dataclass(frozen=True, kw_only=True)
class Options:
    """Make a corpus of Python's own library, train a tokenizer on it, encode it, and report."""

    out: Path = Path("runs/demo")
    """the folder for everything"""
    text: OptionalPath = None
    """a text of your own, instead of the built-in corpus"""
    vocab_size: int = 4096
    """number of tokens"""


class Steps:
    """Numbers the steps, times each, and says what came of it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._done = 0
        self._last = perf_counter()

    def done(self, name: str, amount: str, where: str | Path) -> None:
        """A line for the step that ends here."""
        from trafo.runtime.console import show
        from trafo.runtime.sizes import format_duration

        now = perf_counter()
        self._done += 1
        duration = format_duration(now - self._last)
        show(f"{self._done}/{self._number}  {name:<10}{amount:>17}{duration:>9}   {where}")
        self._last = now


def run(options: Options) -> None:
    """One step after the other."""
    from trafo.cli.tokenizer import train
    from trafo.runtime.sizes import format_size
    from trafo.tokenizer.corpus import encode_files
    from trafo.tokenizer.report import measure
    from trafo.tokenizer.report.printing import print_parts
    from trafo.tokenizer.report.render import render
    from trafo.tokenizer.tokenizer import Tokenizer

    steps = Steps(4)
    text = _text(options)
    steps.done("corpus", format_size(text.stat().st_size), text)

    folder = options.out / "tokenizer"
    training = train.train(
        train.Options(text=(str(text),), vocab_size=options.vocab_size, out=folder, overwrite=True)
    )
    steps.done("tokenizer", f"{len(training.parts.vocab):,} tokens", folder)

    tokenizer = Tokenizer.load(folder)
    tokens = encode_files(tokenizer, text, options.out / "corpus.tokens")
    steps.done("ids", f"{len(tokens):,}", tokens.path)

    report = measure(tokenizer, text, name=str(folder))
    steps.done("report", f"{report.total.bytes_per_token:.2f} bytes/token", "below")
    print_parts("", *render(report), "", "What next:", *_next(folder, text, options.out))


def _text(options: Options) -> Path:
    from trafo.data.corpora import build_corpus

    if options.text is None:
        return build_corpus(options.out)
    from trafo.tokenizer.sources import expand_paths

    return expand_paths(options.text)[0]


def _next(folder: Path, text: Path, out: Path) -> Iterable[str]:
    """Commands that work as they stand."""
    larger = out / "larger"
    advice = {
        "see the tokens": command("report", folder, text, "--show", "600"),
        "try a line of your own": command("encode", folder, "--text", "for word in text.split():"),
        "train with GPT-4's pattern": command(
            "train", text, "--vocab-size", "10000", "--pattern", "gpt4", "--out", larger
        ),
        "compare the two": command("report", folder, text, "--compare", larger),
    }
    for why, line in advice.items():
        yield f"  {why}"
        yield f"    {line}"
