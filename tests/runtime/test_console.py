"""Messages go to stderr, results to stdout, both word for word."""

from rich.table import Table

from trafo.runtime import console


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
    assert console.visible("a\x1b]0;title\x07\nb\tc") == "a␛]0;title␇\nb\tc"
    plain = "".join(map(chr, range(32, 127))) + "ö漢🙂"
    assert console.visible(plain) == plain
