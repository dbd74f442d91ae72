"""What `trafo tokenizer report` puts on the screen."""

import re
from itertools import pairwise

from trafo.cli.tokenizer.report import format_change, make_report_tables, mark_tokens
from trafo.runtime.console import format_percent, results, show
from trafo.tokenizer.report import measure_tokenizer


def test_percent_and_change():
    assert (format_percent(1, 8), format_percent(1, 10**6), format_percent(0, 5)) == (
        "12.5 %",
        "<0.1 %",
        "0.0 %",
    )
    assert (format_change(4, 5), format_change(5, 4)) == ("+25.0 %", "-20.0 %")
    assert format_change(0, 1) == ""


def test_bars_part_tokens_and_lose_nothing(tokenizer):
    text = "The cat\n sat 猫"
    bars = mark_tokens(tokenizer, text, in_colour=False)
    assert bars.count("|") == len(tokenizer.encode(text)) - 1
    assert bars.replace("|", "").replace("↵\n", "\n").startswith("The cat\n sat ")


def test_each_token_has_another_colour_than_its_neighbours(tokenizer):
    text = "The cat sat on the mat"
    shown = mark_tokens(tokenizer, text, in_colour=True)
    assert shown.plain == text
    styles = [str(span.style) for span in shown.spans]
    assert len(styles) == len(tokenizer.encode(text))
    assert all(one != other for one, other in pairwise(styles))


def test_the_report_fits_into_80_columns(corpus, tokenizer, tmp_path, capsys):
    report = measure_tokenizer(tokenizer, corpus, name="small")
    (tmp_path / f"{'long' * 20}.txt").write_text(corpus.read_text())
    two_files = measure_tokenizer(tokenizer, [corpus, tmp_path], name="small")
    show(
        *make_report_tables(report),
        *make_report_tables(two_files),
        *make_report_tables(report, two_files),
    )
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r" $", shown, re.MULTILINE)
    for words in (
        "bytes per token",
        "Cyrillic",
        "·the",
        "unreachable",
        "not UTF-8: <C0>",
        "change",
    ):
        assert words in shown
    assert f"{report.total.bytes_per_token:.2f}" in shown
    assert results().width == 80
