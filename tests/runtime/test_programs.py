"""A program in another process, spoken to line by line."""

from __future__ import annotations

import time

from trafo.runtime.programs import LineProgram

SHOUTS = """
import os, sys
for line in sys.stdin:
    print(os.environ["HOW"], line.upper(), end="", flush=True)
"""


def test_it_answers_line_by_line_and_ends_with_its_input() -> None:
    program = LineProgram(["-c", SHOUTS], {"HOW": "loudly"})
    assert program.answer() is None  # nothing was asked
    program.send("cat")
    assert program.wait_for_answer() == "loudly CAT\n"
    program.send("mat")
    while (answer := program.answer()) is None:
        time.sleep(0.01)
    assert answer == "loudly MAT\n"
    assert program.is_alive
    program.close()
    assert not program.is_alive


def test_one_that_has_died_answers_with_nothing() -> None:
    program = LineProgram(["-c", "raise SystemExit(1)"], {})
    assert program.wait_for_answer() == ""
    program.send("still there?")
    program.close()
    assert not program.is_alive


def test_it_can_be_stopped_while_it_works() -> None:
    program = LineProgram(["-c", "import time; print('ready', flush=True); time.sleep(60)"], {})
    assert program.wait_for_answer() == "ready\n"
    program.stop()
    assert program.wait_for_answer() == ""
    program.close()
