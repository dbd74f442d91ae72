"""`trafo generate`: a prompt in, completions out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from trafo.cli.arguments import LATEST, RunPath, only
from trafo.cli.pipes import is_interactive, stdin_text, wait_for_stdin
from trafo.errors import InputError, require, require_at_least
from trafo.generate.beam_config import BeamConfig
from trafo.generate.config import GenerationConfig, Kernel
from trafo.runtime.console import replace_controls, say
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_duration, format_rate

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import Bundle
    from trafo.generate import Completion, Piece

_LONGEST_PROMPT = 100_000_000  # characters on stdin: more than that may never end


@dataclass(frozen=True, kw_only=True)
class GeneratingOptions(GenerationConfig):
    """The model and the settings of `trafo generate` and `trafo chat`."""

    run: RunPath = LATEST
    """a run, one of its checkpoints, a Hugging Face folder, a GGUF or a llama2.c file"""
    top_k: int | None = None
    """top-k sampling: sample from the k most probable tokens"""
    end_token: str | None = None
    """special token that ends a completion; None: the model's own, such as <|endoftext|>"""
    stop: tuple[str, ...] = ()
    """stop strings: end before any of these; they are not part of the completion"""
    kernel: Kernel = "auto"
    """decode with the model itself (readable), with kernels compiled for this processor, or with
    those where they support the model (auto)"""
    threads: int | None = None
    """CPU threads; None: the fastest number, found by timing the work"""
    best: bool = False
    """use the checkpoint with the lowest validation loss instead of the newest"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, **{"--threads": self.threads})

    def config(self) -> GenerationConfig:
        """The settings of generation alone."""
        return only(GenerationConfig, self)


@dataclass(frozen=True, kw_only=True)
class Options(GeneratingOptions):
    """Generate text with a trained model; a single completion is streamed.

    Several prompts or samples are generated as a batch and shown when they are done.
    """

    prompt: tuple[str, ...] = ()
    """prompts to complete; without one, standard input if it is piped in, else the model starts a
    new document"""
    prompts: Path | None = None
    """file of prompts, one per line"""
    logprobs: int | None = None
    """with --json: log-probability of each token, and of this many alternatives"""
    beam: int | None = None
    """beam search with this many hypotheses instead of sampling; --num-samples shows the best of
    them"""
    length_penalty: float = 1.0
    """beam search: exponent of the length normalization; higher favours longer completions"""
    echo: bool = True
    """print the prompt before its completion"""
    json: bool = False
    """print JSON"""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_one = not self.prompt or self.prompts is None
        require(is_one, "both --prompt and --prompts are given", "give one of them")
        require(self.logprobs is None or self.json, "--logprobs needs --json", "add --json")
        if self.beam is not None:
            self.search()  # refuses what makes no sense

    def search(self) -> BeamConfig:
        """The settings of beam search."""
        return BeamConfig(
            beam=self.beam or 1, length_penalty=self.length_penalty, n_best=self.num_samples
        )


def run(options: Options) -> None:
    """Load, generate, show."""
    from trafo.checkpoint.bundle import load_bundle

    options = _with_run(options)
    prompts = _prompts(options)
    bundle = load_bundle(options.run, best=options.best, fast=options.kernel != "readable")
    bundle.require_language_model()
    speed = _Speed()
    is_one = len(prompts) == 1 and options.num_samples == 1
    if is_one and options.beam is None and not options.json:
        _show_stream(bundle, prompts[0], options, speed)
    else:
        completions = _generate(bundle, prompts, options, speed)
        show_all = _show_json if options.json else _show_texts
        show_all(prompts, completions, options)
    if options.beam is None:
        speed.say()


def _with_run(options: Options) -> Options:
    """`--prompt a b RUN`: a run after the prompts looks like one of them."""
    *prompts, last = options.prompt or ("",)
    if options.run == LATEST and prompts and Path(last).exists():
        return replace(options, prompt=tuple(prompts), run=Path(last))
    return options


def _prompts(options: Options) -> list[str]:
    if options.prompts is None:
        return list(options.prompt) or [_piped()]
    if options.prompts.exists() and not options.prompts.is_file():
        what = "is a pipe, a folder or a device"
        raise InputError(what, where=str(options.prompts), hint="save the prompts to a file first")
    try:
        lines = options.prompts.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start:,}",
            where=str(options.prompts),
        ) from None
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise InputError("has no prompts", where=str(options.prompts), hint="write one per line")
    return prompts


def _piped() -> str:
    """The text on standard input, without the line end that `echo` adds; empty on a terminal."""
    if is_interactive():
        return ""
    wait_for_stdin("the prompt")
    parts, length = [], 0
    for part in stdin_text():
        parts.append(part)
        length += len(part)
        if length > _LONGEST_PROMPT:
            what = f"the prompt has more than {_LONGEST_PROMPT:,} characters"
            raise InputError(what, where="stdin", hint="pipe a shorter text in")
    return "".join(parts).removesuffix("\n")


def _show_stream(bundle: Bundle, prompt: str, options: Options, speed: _Speed) -> None:
    """Print the text as it is generated."""
    from trafo.fast.threads import torch_threads
    from trafo.generate import stream

    threads = torch_threads(options.threads)
    pieces = stream(bundle.model, bundle.tokenizer, [prompt], options.config(), threads)
    write(prompt if options.echo else "")
    try:
        for piece in speed.of(pieces):
            write(piece.text)
    finally:  # an error is told on a line of its own
        write("\n")


def write(text: str) -> None:
    """Write to stdout at once, always as UTF-8."""
    import sys

    if text and sys.stdout.isatty():
        text = replace_controls(text)
    if text:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()


def _generate(
    bundle: Bundle, prompts: list[str], options: Options, speed: _Speed
) -> list[Completion]:
    from trafo.fast.threads import torch_threads
    from trafo.generate import search, stream
    from trafo.generate.complete import collect

    config = options.config()
    if options.beam is not None:
        return search(bundle.model, bundle.tokenizer, prompts, options.search(), config)
    most = len(prompts) * config.num_samples * config.max_new_tokens

    def counted(pieces: Iterator[Piece]) -> Iterator[Piece]:
        with progress("generating", total=most, unit="tokens") as bar:
            for piece in pieces:
                bar.advance()
                yield piece

    threads = torch_threads(options.threads)
    pieces = stream(bundle.model, bundle.tokenizer, prompts, config, threads)
    return collect(counted(speed.of(pieces)), len(prompts), config.num_samples)


def _show_texts(prompts: list[str], completions: list[Completion], options: Options) -> None:
    for done in completions:
        which = [f"prompt {done.prompt + 1}"] if len(prompts) > 1 else []
        which += [f"sample {done.sample + 1}"] if options.num_samples > 1 else []
        if which:
            write(f"--- {', '.join(which)}\n")
        write((prompts[done.prompt] if options.echo else "") + done.text + "\n")


def _show_json(prompts: list[str], completions: list[Completion], options: Options) -> None:
    import json

    content = [_as_dict(prompts[done.prompt], done, options) for done in completions]
    write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _as_dict(prompt: str, done: Completion, options: Options) -> dict[str, Any]:
    content = {
        "prompt": prompt,
        "sample": done.sample,
        "text": done.text,
        "finish_reason": done.finish_reason,
        "ids": done.ids,
    }
    if options.logprobs is not None:
        content["logprobs"] = done.logprobs
        content["alternatives"] = [dict(token.alternatives) for token in done.tokens]
    return content


class _Speed:
    """Times the first token, before which kernels are loaded, and the others."""

    def __init__(self) -> None:
        self._start = self._first = self._last = perf_counter()
        self._num_tokens = 0

    def of(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The same pieces, counted."""
        for piece in pieces:
            if piece.token is not None:
                self._last = perf_counter()
                self._first = self._first if self._num_tokens else self._last
                self._num_tokens += 1
            yield piece

    def say(self) -> None:
        """Such as `128 tokens in 1.1 s, the first after 900 ms, then 640 tokens/s`."""
        words = f"{self._num_tokens:,} tokens in {format_duration(self._last - self._start)}"
        if self._last > self._first:
            rate = format_rate((self._num_tokens - 1) / (self._last - self._first), "tokens")
            words += f", the first after {format_duration(self._first - self._start)}, then {rate}"
        say(words)
