"""A live bar on a terminal, few lines in a pipe, nothing when quiet or quick."""

import io
import re
import sys
from threading import Thread
from types import SimpleNamespace

import pytest
from rich.console import Console

from trafo.runtime import console
from trafo.runtime import progress as module
from trafo.runtime.progress import progress, set_quiet


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    """stderr as a terminal that we can read."""
    screen = io.StringIO()
    fake = Console(file=screen, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    monkeypatch.setattr(console, "messages", lambda: fake)
    return screen


def test_piped_lines_say_what_how_much_how_fast_and_how_long(clock, capsys):
    with progress("counting", total=100e6, unit="MB", scale=1e6) as bar:
        clock.now += 5
        bar.advance(25e6)
        clock.now += 1
        bar.advance(1)  # too soon for another line
        clock.now += 4
        bar.completed = 0
        bar.advance(100e6)
    assert capsys.readouterr() == (
        "",
        "counting: 25.0/100.0 MB, 5.0 MB/s, 15.0 s left\n"
        "counting: 100.0/100.0 MB, 10.0 MB/s\n"
        "counting: 100.0/100.0 MB, 10.0 MB/s, 10.0 s\n",
    )


def test_without_a_total_or_scale(clock, capsys):
    with progress("merging", unit="merges") as bar:
        clock.now += 2
        bar.advance()
        bar.advance(12_345)
    assert capsys.readouterr().err == "merging: 12,346 merges, 6,173 merges/s, 2.0 s\n"


def test_long_lines_are_not_folded_when_piped(clock, capsys):
    with progress("x" * 200, total=1) as bar:
        clock.now += 1
        bar.advance()
    assert capsys.readouterr().err.count("\n") == 1


def test_brackets_in_a_description_are_not_markup(clock, capsys):
    with progress("[bold]file[/bold]"):
        clock.now += 1
    assert capsys.readouterr().err.startswith("[bold]file[/bold]: ")


def test_what_is_over_at_once_says_nothing_when_piped(clock, capsys):
    with progress("counting", total=2) as bar:
        clock.now += 0.4
        bar.advance(2)
    assert capsys.readouterr().err == ""


def test_quiet(clock, capsys):
    set_quiet(True)
    try:
        with progress("counting", total=2) as bar:
            clock.now += 60
            bar.advance(2)
    finally:
        set_quiet(False)
    assert bar.completed == 2
    assert capsys.readouterr().err == ""


def fail_after_three_seconds(clock):
    with progress("counting", total=2):
        clock.now += 3
        raise RuntimeError


def test_a_failed_block_claims_no_end(clock, capsys):
    with pytest.raises(RuntimeError):
        fail_after_three_seconds(clock)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_live_bar(terminal):
    with progress("reading [x]", total=4e6, unit="MB", scale=1e6) as bar:
        bar.advance(4e6)
    shown = terminal.getvalue()
    assert "reading [x]" in shown
    assert "━" in shown
    assert re.search(r"4\.0/4\.0 MB, [\d.,]+ MB/s", shown)


def test_the_terminal_gets_its_cursor_back_after_an_error(terminal):
    with pytest.raises(RuntimeError), progress("reading", total=4):
        raise RuntimeError
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert terminal.getvalue().rindex(show) > terminal.getvalue().rindex(hide)


def test_no_count_is_lost_between_threads():
    with progress("counting") as bar:
        threads = [
            Thread(target=lambda: [bar.advance() for _ in range(5000)] and None) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert bar.completed == 20_000


def test_a_notebook_has_one_bar_that_is_redrawn(clock, monkeypatch):
    """Stand-ins for IPython's display, which hands out a handle for what it has shown."""
    shown = []

    class Handle:
        def update(self, content):
            shown[-1] = content

    def display(content, display_id):
        shown.append(content)
        return Handle()

    fake = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=fake))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    monkeypatch.setattr(console, "messages", lambda: notebook)
    with progress("a < b", total=4, unit="steps") as bar:
        for _ in range(4):
            clock.now += 1
            bar.advance()
    assert shown == [
        '<progress max="4" value="4.0"></progress> <code>a &lt; b  4/4 steps, 1.0 steps/s</code>'
    ]


def frames(monkeypatch, width, parts, *, colours="standard", steps=4):
    """What the terminal shows while a job with its own status runs to its end, frame by frame."""
    screen = io.StringIO()
    fake = Console(
        file=screen,
        force_terminal=True,
        width=width,
        color_system=colours,
        _environ={"TERM": "xterm"},
    )
    monkeypatch.setattr(console, "messages", lambda: fake)
    monkeypatch.setattr(module.LiveBar, "interval", 0.0)
    with progress("training", total=steps, unit="steps", status_parts=lambda: parts) as bar:
        for _ in range(steps):
            bar.advance()
            bar._progress.refresh()
    return screen.getvalue().replace("\x1b[?25h", "").replace("\x1b[?25l", "")


STATUS = [
    "step 12,345/100,000",
    "12m 05s left",
    "loss 2.199",
    "val 2.651",
    "17,364 tokens/s",
    "lr 5.0e-03",
    "grad 0.58",
    "40 % of peak",
]


@pytest.mark.parametrize(("width", "shown"), [(60, 2), (80, 4), (100, 5), (160, 8)])
def test_a_long_status_is_cut_to_the_line_and_the_bar_stays(monkeypatch, width, shown):
    screen = frames(monkeypatch, width, STATUS)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r", "\n").splitlines()
    assert max(map(len, map(str.rstrip, lines))) < width
    last = lines[-1]
    assert "━" in last
    assert [part for part in STATUS if part in last] == STATUS[:shown]


def test_a_finished_bar_has_another_colour_among_the_16_of_a_terminal(monkeypatch):
    """By the codes of ECMA-48: 32 is green, 36 is cyan, 1 is bold; 90, bright black, is usual."""
    screen = frames(monkeypatch, 80, ["step 4/4"])
    bars = re.findall(r"\x1b\[([0-9;]*)m━", screen)
    assert set(bars) == {"90", "36", "1;32"}
    assert bars[-1] == "1;32"


def test_a_job_of_unknown_length_ends_with_a_full_bar(terminal):
    with progress("merging", unit="merges") as bar:
        bar.advance(7)
    assert terminal.getvalue().rstrip().count("━" * 24) >= 1
    assert (bar.completed, bar.total) == (7, 7)


def test_slow_work_says_what_one_takes(clock, capsys):
    with progress("training", total=3, unit="steps") as bar:
        clock.now += 5
        bar.advance(0)
        clock.now += 5
        bar.advance(2)
    assert capsys.readouterr().err == (
        "training: 0/3 steps\n"
        "training: 2/3 steps, 5.0 s per step, 5.0 s left\n"
        "training: 2/3 steps, 5.0 s per step, 5.0 s left, 10.0 s\n"
    )
