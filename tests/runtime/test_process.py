"""Signals, the seed, and programs that are driven line by line."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from trafo.errors import ConfigError
from trafo.runtime.process import LineProgram, catch_interruptions, handle_signals, seed_everything


def test_signals_are_noted_and_the_second_one_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with catch_interruptions() as interruption:
        assert interruption.signal is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.signal is signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.signal is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_run_the_block_without_handlers() -> None:
    done = []

    def work() -> None:
        with handle_signals(lambda number, frame: None, signal.SIGTERM):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_the_same_seed_gives_the_same_draws():
    seed_everything(7)
    first = draws()
    later = draws()
    seed_everything(7)
    assert draws() == first
    assert all(a != b for a, b in zip(first, later, strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_numpy_cannot_take_is_refused(seed):
    with pytest.raises(ConfigError, match="from 0 to 4294967295"):
        seed_everything(seed)


def test_seeding_does_not_import_torch():
    code = (
        "import sys; from trafo.runtime.process import seed_everything; seed_everything(1);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
