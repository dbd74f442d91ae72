"""Columns line up, and a pipe gets no trailing blanks."""

from trafo.runtime.console import show
from trafo.runtime.tables import dim, percent, plain_table


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
    assert [percent(part, 1000) for part in (0, 0.4, 1, 1000)] == [
        "0.0 %",
        "<0.1 %",
        "0.1 %",
        "100.0 %",
    ]
    assert percent(0, 0) == "0.0 %"
