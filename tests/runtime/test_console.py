"""Messages go to stderr, results to stdout, word for word, and columns line up."""

from rich.table import Table

from trafo.runtime import console
from trafo.runtime.console import dim, format_percent, plain_table, show


def test_messages_and_results_do_not_mix(capsys):
    console.say("a [note]")
    console.show("a [result] " + "x" * 200)
    assert capsys.readouterr() == ("a [result] " + "x" * 200 + "\n", "a [note]\n")


def test_tables_are_results_too(capsys):
    table = Table("name", "tokens")
    table.add_row("gpt2", "50257")
    console.show(table)
    assert "50257" in capsys.readouterr().out


def test_control_characters_are_shown_not_obeyed():
    assert console.replace_controls("a\x1b]0;title\x07\nb\tc") == "a␛]0;title␇\nb\tc"
    plain = "".join(map(chr, range(32, 127))) + "ö漢🙂"
    assert console.replace_controls(plain) == plain


def test_columns_are_flush_left_or_right(capsys):
    table = plain_table("lrl", ["script", "tokens", "note"])
    table.add_row("Latin", "1,204", dim("[most]"))
    table.add_row("Thai", "7")
    show(table)
    assert capsys.readouterr().out == (
        "script   tokens   note\nLatin     1,204   [most]\nThai          7\n"
    )


def test_without_a_head_there_are_rows_only(capsys):
    table = plain_table("lr")
    table.add_row("loss", "3.1")
    show(table, "the end ")
    assert capsys.readouterr().out == "loss   3.1\nthe end \n"


def test_percent_tells_a_trace_from_nothing():
    assert [format_percent(part, 1000) for part in (0, 0.4, 1, 1000)] == [
        "0.0 %",
        "<0.1 %",
        "0.1 %",
        "100.0 %",
    ]
    assert format_percent(0, 0) == "0.0 %"
