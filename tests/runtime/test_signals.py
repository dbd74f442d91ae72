import os
import signal
import threading

import pytest

from trafo.runtime.signals import handling, interruptions


def test_signals_are_noted_and_the_second_one_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptions() as interruption:
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
        with handling(lambda number, frame: None, signal.SIGTERM):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
