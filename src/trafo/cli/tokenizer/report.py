"""`trafo tokenizer report`: how a tokenizer encodes a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trafo.cli.arguments import Errors, OptionalPlace, TextPaths, TokenizerPath
from trafo.errors import require_at_least
from trafo.runtime.console import results, show, show_json

if TYPE_CHECKING:
    from trafo.tokenizer.report import Report
    from trafo.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Options:
    """Report on a tokenizer over a text: bytes per token, frequent, unused and odd tokens."""

    tokenizer: TokenizerPath
    """a tokenizer in any format that trafo reads, or a run or model that has one"""
    text: TextPaths
    """files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    compare: OptionalPlace = None
    """second tokenizer, to compare side by side"""
    show: int = 0
    """show the tokens of the first N characters of the text, coloured"""
    top: int = 10
    """how many of the longest and of the most frequent tokens to list"""
    json: bool = False
    """print JSON instead of tables"""
    field: str = "text"
    """field that holds the text in JSON lines and Parquet"""
    errors: Errors = "strict"
    """invalid UTF-8: stop (strict), or read U+FFFD (replace)"""

    def __post_init__(self) -> None:
        require_at_least(0, **{"--show": self.show, "--top": self.top})


def run(options: Options) -> None:
    """Measure, then show."""
    from trafo.checkpoint.locate import load_tokenizer
    from trafo.tokenizer import open_inputs
    from trafo.tokenizer.report import measure

    paths = [path for path in (options.tokenizer, options.compare) if path is not None]
    tokenizers = [load_tokenizer(path) for path in paths]
    inputs = open_inputs(options.text, options.field, options.errors)
    reports = [
        measure(tokenizer, inputs, name=path, top=options.top)
        for tokenizer, path in zip(tokenizers, paths, strict=True)
    ]
    if options.json:
        content = [report.to_dict() for report in reports]
        show_json(content[0] if len(content) == 1 else content)
        return
    if options.show:
        for tokenizer in tokenizers:
            _show_tokens(tokenizer, inputs.first_characters(options.show))
    _show_tables(reports)


def _show_tables(reports: list[Report]) -> None:
    from trafo.cli.tokenizer.report_tables import comparison_tables, report_tables

    show(*(report_tables(*reports) if len(reports) == 1 else comparison_tables(*reports)))


def _show_tokens(tokenizer: Tokenizer, text: str) -> None:
    from trafo.cli.tokenizer.report_tables import barred_tokens, coloured_tokens

    coloured = results().is_terminal and not results().no_color
    show(coloured_tokens(tokenizer, text) if coloured else barred_tokens(tokenizer, text))
    show("")
