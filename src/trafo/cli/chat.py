"""`trafo chat`: talk to a model in turns, on a terminal.

A model with a chat template answers messages. With any other, what is typed and what the model
writes are one text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trafo.cli.generate import GeneratingOptions, write
from trafo.errors import require
from trafo.runtime.console import say

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import Bundle
    from trafo.generate.config import GenerationConfig
    from trafo.runtime.threads import ThreadChooser

_NEW = "/new"
_HELP = f"type, and the model continues; Enter: more; {_NEW}: a new text; Ctrl-D: exit"
_HELP_WITH_TEMPLATE = f"type, and the model answers; {_NEW}: a new chat; Ctrl-D: exit"


@dataclass(frozen=True, kw_only=True)
class Options(GeneratingOptions):
    """Chat with a model, or write a text together with it, in turns.

    If the model has a chat template, it answers what you type. Otherwise what you type is added to
    the text so far, and the model continues from there. Ctrl-C stops the model, Ctrl-D exits.
    """

    max_new_tokens: int = 256
    """maximum number of new tokens per turn"""
    system: str | None = None
    """instructions for the model, before the first message; needs a chat template"""
    template: bool = True
    """use the model's chat template, if it has one"""
    temperature: float = 0.8
    """sampling temperature: below 1 favours likely tokens; 0 is greedy decoding"""
    logprobs: int | None = None
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
    bundle.require_language_model()
    has_template = options.template and bundle.tokenizer.spec.chat_template is not None
    threads = torch_threads(options.threads)
    if has_template:
        say(_HELP_WITH_TEMPLATE)
        _take_turns_by_template(bundle, options.config(), threads, options.system)
        return
    what = "--system needs a chat template, and the model has none"
    require(options.system is None, what, "begin the text with your instructions")
    say(_HELP)
    _take_turns(bundle, options.config(), threads)


def _take_turns_by_template(
    bundle: Bundle, config: GenerationConfig, threads: ThreadChooser, system: str | None
) -> None:
    from trafo.generate.chat_template import ChatTemplate

    template = ChatTemplate.of(bundle.tokenizer)
    beginning = [] if system is None else [{"role": "system", "content": system}]
    messages = list(beginning)
    for turn, line in enumerate(_typed()):
        if line.strip() == _NEW:
            messages = list(beginning)
            continue
        messages.append({"role": "user", "content": line})
        ids = template.encode(bundle.tokenizer, messages)
        answer, _ = _print_more(bundle, ids, replace(config, seed=config.seed + turn), threads)
        messages.append({"role": "assistant", "content": answer})


def _take_turns(bundle: Bundle, config: GenerationConfig, threads: ThreadChooser) -> None:
    text = ""
    for turn, line in enumerate(_typed()):
        if line.strip() == _NEW:
            text = ""
            continue
        is_between_words = text and line and not text[-1].isspace()
        text += f" {line}" if is_between_words else line
        # Another seed for each turn: the same one would repeat its choices.
        config_of_turn = replace(config, seed=config.seed + turn)
        added, is_over = _print_more(bundle, text, config_of_turn, threads)
        text += added
        if is_over:
            say("(the text ends here; the next line begins another)")
            text = ""


def _print_more(
    bundle: Bundle, prompt: str | list[int], config: GenerationConfig, threads: ThreadChooser
) -> tuple[str, bool]:
    """Print what the model adds; returns it, and whether the model has ended the text."""
    from trafo.generate import stream

    text, is_over = "", False
    with suppress(KeyboardInterrupt):
        for piece in stream(bundle.model, bundle.tokenizer, [prompt], config, threads):
            write(piece.text)
            text += piece.text
            is_over = is_over or piece.finish_reason == "end"
    write("\n")
    return text, is_over


def _typed() -> Iterator[str]:
    """Lines until the end of the input."""
    with suppress(ImportError):
        import readline  # noqa: F401  (arrow keys and history in `input`)
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
