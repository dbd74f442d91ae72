"""The thread that all engines share: turns, leaving, waking up."""

import threading
import time

from trafo.serve.worker import EngineThread


class Counting:
    """Has a number of turns to take; records who took them, and in which thread."""

    def __init__(self, name, turns, log):
        self.name, self.turns, self.log = name, turns, log

    @property
    def has_work(self):
        return self.turns > 0

    def take_turn(self):
        self.turns -= 1
        self.log.append((self.name, threading.current_thread().name))


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def engine_threads():
    return [thread for thread in threading.enumerate() if thread.name == "engine"]


def test_engines_take_turns_in_one_thread():
    log, thread, before = [], EngineThread(), len(engine_threads())
    first, second = Counting("a", 0, log), Counting("b", 0, log)
    thread.add(first)
    thread.add(second)
    assert len(engine_threads()) == before + 1
    with thread.changes():
        first.turns = second.turns = 3
    wait_for(lambda: len(log) == 6)
    assert [name for name, _ in log] == ["a", "b"] * 3
    assert {where for _, where in log} == {"engine"}
    thread.remove(first)
    with thread.changes():
        first.turns, second.turns = 1, 2
    wait_for(lambda: len(log) == 8)
    assert [name for name, _ in log[6:]] == ["b", "b"]
    thread.remove(second)
    wait_for(lambda: len(engine_threads()) == before)
    assert first.turns == 1


def test_removing_waits_for_the_running_turn():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def take_turn(self):
            begun.set()
            go_on.wait(10)
            super().take_turn()

    log, thread = [], EngineThread()
    worker = Slow("slow", 1, log)
    thread.add(worker)
    begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    thread.remove(worker)
    assert len(log) == 1


def test_can_be_removed_twice_and_added_again():
    log, thread = [], EngineThread()
    worker = Counting("a", 0, log)
    thread.remove(worker)
    for turns in (1, 2):
        thread.add(worker)
        with thread.changes():
            worker.turns = turns
        wait_for(lambda: not worker.turns)
        thread.remove(worker)
        thread.remove(worker)
    assert len(log) == 3
