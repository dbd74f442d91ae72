"""`trafo chat`: write a text together with a model, in turns, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trafo.cli.arguments import OptionalInt
from trafo.cli.generate import GeneratingOptions, write
from trafo.errors import require
from trafo.runtime.console import say

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import Bundle
    from trafo.generate.config import GenerationConfig
    from trafo.runtime.threads import ThreadChooser

_NEW = "/new"
_HELP = f"type, and the model continues; Enter: more; {_NEW}: a new text; Ctrl-D: exit"


@dataclass(frozen=True, kw_only=True)
class Options(GeneratingOptions):
    """Write a text together with a model, in turns.

    What you type is added to the text so far, and the model continues from there. Ctrl-C stops the
    model, Ctrl-D exits.
    """

    max_new_tokens: int = 64
    """maximum number of new tokens per turn"""
    temperature: float = 0.8
    """sampling temperature: below 1 favours likely tokens; 0 is greedy decoding"""
    logprobs: OptionalInt = None
    """not used here"""

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"--num-samples is {self.num_samples}"
        require(self.num_samples == 1, what, "a chat has one text; use `trafo generate`")


def run(options: Options) -> None:
    """Load, then take turns."""
    from trafo.checkpoint.bundle import load_bundle
    from trafo.fast.threads import torch_threads

    bundle = load_bundle(options.run, best=options.best, fast=options.kernel != "readable")
    say(_HELP)
    _take_turns(bundle, options.config(), torch_threads(options.threads))


def _take_turns(bundle: Bundle, config: GenerationConfig, threads: ThreadChooser) -> None:
    text = ""
    for turn, line in enumerate(_typed()):
        if line.strip() == _NEW:
            text = ""
            continue
        is_between_words = text and line and not text[-1].isspace()
        text += f" {line}" if is_between_words else line
        # Another seed for each turn: the same one would repeat its choices.
        text = _go_on(bundle, text, replace(config, seed=config.seed + turn), threads)


def _go_on(bundle: Bundle, text: str, config: GenerationConfig, threads: ThreadChooser) -> str:
    """Print what the model adds; returns the text with it, or nothing if the model has ended it."""
    from trafo.generate import stream

    is_over = False
    with suppress(KeyboardInterrupt):
        for piece in stream(bundle.model, bundle.tokenizer, [text], config, threads):
            write(piece.text)
            text += piece.text
            is_over = is_over or piece.finish_reason == "end"
    write("\n")
    if is_over:
        say("(the text ends here; the next line begins another)")
        return ""
    return text


def _typed() -> Iterator[str]:
    """Lines until the end of the input."""
    with suppress(ImportError):
        import readline  # noqa: F401  (arrow keys and history in `input`)
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
