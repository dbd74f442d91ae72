"""`trafo translate`: sentences in, translations out, line by line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from trafo.cli.arguments import LATEST, RunPath
from trafo.cli.decoding import DecodingFlags
from trafo.cli.pipes import wait_for_stdin
from trafo.config import Argument, Positional
from trafo.errors import InputError, require_at_least
from trafo.runtime.atomic import atomic_write
from trafo.runtime.console import say, show
from trafo.runtime.progress import progress

if TYPE_CHECKING:
    from rich.tree import Tree

    from trafo.checkpoint.bundle import Bundle
    from trafo.generate.beam_config import BeamConfig, Hypothesis
    from trafo.generate.translate import Translation

Kind = Literal["cross", "encoder", "decoder"]
Files = Annotated[Positional[tuple[Path, ...]], Argument(metavar="FILE ...")]

_MOST_ON_STDIN = 1_000_000_000  # bytes: more than that may never end
_TOGETHER = 4000  # lines that are sorted by length and translated before they are written


@dataclass(frozen=True, kw_only=True)
class Options(DecodingFlags):
    """Translate files, standard input, or what you type: one sentence per line."""

    run: RunPath = LATEST
    """a run of a translation model, or one of its checkpoints"""
    files: Files = ()
    """text files with a sentence per line, also .gz, .zst; none: standard input"""
    out: Path | None = None
    """file for the translations; None: standard output"""
    threads: int | None = None
    """CPU threads; None: the fastest number, found by timing the work"""
    best: bool = False
    """use the checkpoint with the lowest validation loss instead of the newest"""
    json: bool = False
    """print a JSON object per line, with log-probabilities and scores"""
    tree: bool = False
    """show the beam search of each sentence as a tree, instead of its translation"""
    attention: Path | None = None
    """plot the attention weights of the first sentence and its translation into this PNG file"""
    attention_of: Kind = "cross"
    """cross-attention, or self-attention of the encoder or the decoder"""
    attention_heads: bool = False
    """one panel per layer and attention head, instead of the mean of all"""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--threads": self.threads})


def run(options: Options) -> None:
    """Load, translate, write."""
    from trafo.checkpoint.bundle import load_bundle
    from trafo.generate.translate import search_settings

    bundle = load_bundle(options.run, best=options.best).require_translation_model()
    search = search_settings(bundle, **options.decoding)
    if not options.files and sys.stdin.isatty():
        _converse(bundle, search, options)
        return
    sentences = _sentences(options.files)
    if options.attention is not None:
        _draw(bundle, sentences, search, options)
    if options.tree:
        _show_trees(bundle, sentences, search)
        return
    if options.out is None:
        for lines in _translated(bundle, sentences, search, options):
            sys.stdout.buffer.write(lines.encode())
            sys.stdout.buffer.flush()
        return
    with atomic_write(options.out, "w") as file:
        file.writelines(_translated(bundle, sentences, search, options))


def translate_all(
    bundle: Bundle, sentences: Sequence[str], config: BeamConfig, threads: int | None
) -> list[list[Translation]]:
    """Translate, with a progress bar."""
    import torch

    from trafo.fast.threads import torch_threads
    from trafo.generate.beam import supports_beams
    from trafo.generate.translate import translate

    total = sum(1 for sentence in sentences if sentence.strip())
    with progress("translating", total=total, unit="sentences") as bar:
        advance: Callable[[int], object] = bar.advance
        if not supports_beams(bundle.model):
            advance = torch_threads(threads).watching(bar.advance)
        elif threads is not None:
            torch.set_num_threads(threads)
        return translate(bundle.model, bundle.tokenizer, sentences, config, advance=advance)


def _sentences(files: Sequence[Path]) -> list[str]:
    from trafo.data.pairs import read_lines

    if files:
        return [line for path in files for line in read_lines(path)]
    wait_for_stdin("sentences")
    data = sys.stdin.buffer.read(_MOST_ON_STDIN + 1)
    if len(data) > _MOST_ON_STDIN:
        what = f"standard input has more than {_MOST_ON_STDIN:,} bytes"
        raise InputError(what, hint="divide the sentences into several files")
    if not data:
        raise InputError("standard input is empty", hint="give sentences, one per line")
    try:
        return data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"line {line:,} is not UTF-8", where="standard input") from None


def _translated(
    bundle: Bundle, sentences: Sequence[str], search: BeamConfig, options: Options
) -> Iterator[str]:
    """The lines to write, some thousand sentences at a time."""
    number = 0
    for start in range(0, len(sentences), _TOGETHER):
        together = sentences[start : start + _TOGETHER]
        all_found = translate_all(bundle, together, search, options.threads)
        for sentence, found in zip(together, all_found, strict=True):
            lines = (_line(number, sentence, each, options, search.n_best) for each in found)
            yield "".join(line + "\n" for line in lines)
            number += 1


def _line(number: int, sentence: str, found: Translation, options: Options, n_best: int) -> str:
    """The text alone; in an n-best list with the sentence's number and score, as in Moses."""
    import json

    if options.json:
        facts = {"source": sentence, "translation": found.text}
        facts |= {"logprob": found.logprob, "score": found.score, "sentence": number}  # type: ignore[dict-item]
        return json.dumps(facts, ensure_ascii=False)
    if n_best == 1:
        return found.text
    return f"{number} ||| {found.text} ||| {found.score:.4f}"


def _draw(bundle: Bundle, sentences: Sequence[str], search: BeamConfig, options: Options) -> None:
    """The attention of the first sentence that is not empty."""
    from trafo.generate.translate import translate
    from trafo.generate.translation_attention import draw_attention, translation_attention

    assert options.attention is not None
    sentence = next((line for line in sentences if line.strip()), None)
    if sentence is None:
        raise InputError("no sentence to draw the attention of", hint="give one that is not empty")
    model, tokenizer = bundle.model, bundle.tokenizer
    target = translate(model, tokenizer, [sentence], search)[0][0].ids
    found = translation_attention(model, tokenizer, sentence, target, options.attention_of)
    draw_attention(found, options.attention, heads=options.attention_heads)
    say(f"attention: {options.attention}")


def _show_trees(bundle: Bundle, sentences: Sequence[str], search: BeamConfig) -> None:
    from trafo.generate.beam import beam_search_steps
    from trafo.generate.translate import source_ids
    from trafo.models.base import evaluating

    model, tokenizer = bundle.model, bundle.tokenizer
    places = [place for place, sentence in enumerate(sentences) if sentence.strip()]
    for place, ids in zip(places, source_ids(model, tokenizer, sentences, places), strict=True):
        with evaluating(model):
            found, steps = beam_search_steps(model, ids, tokenizer.end, search)
        show(
            _beam_tree(
                sentences[place], steps, found[0], lambda token: tokenizer.target.decode([token])
            )
        )


def _beam_tree(
    sentence: str,
    steps: Sequence[Sequence[Hypothesis]],
    best: Hypothesis,
    word: Callable[[int], str],
) -> Tree:
    """Every hypothesis that was kept at a step is a node below the one that it extends.

    A node shows its token and the log-probability up to it; the translation is bold.
    """
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(sentence))
    nodes: dict[tuple[int, ...], Tree] = {(): root}
    for kept in steps:
        for ids, logprob, _ in kept:
            wins = best.ids[: len(ids)] == ids
            label = Text(f"{word(ids[-1])}  {logprob:.2f}", style="bold" if wins else "dim")
            nodes[ids] = nodes[ids[:-1]].add(label)
    return root


def _converse(bundle: Bundle, search: BeamConfig, options: Options) -> None:
    """Translate what is typed, until an empty line or the end of the input."""
    from trafo.generate.translate import translate

    say("type a sentence to translate; an empty line exits")
    number = 0
    while sentence := _typed():
        found = translate(bundle.model, bundle.tokenizer, [sentence], search)[0]
        show("\n".join(_line(number, sentence, each, options, search.n_best) for each in found))
        number += 1


def _typed() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""
