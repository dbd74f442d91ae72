"""Damage every kind of file that trafo reads, for as long as one lets it.

    python tests/fuzz/fuzz.py --rounds 10000                     # of each subject, in turn
    python tests/fuzz/fuzz.py --subject gguf --seed 1 --only 4711     # one of them again

A finding is an exception that the command line would call a bug in trafo, a read of more than
`--limit` seconds of processor time, or a process that dies. Each is printed with the line that
repeats it, and its file is kept in `--out`. Rounds run in worker processes, which are replaced when
they die.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutate import mutate
from subjects import SUBJECTS

_MEMORY = 12 << 30  # bytes of address space, so that a lie about a size is an error, not a swap
_TOGETHER = 500  # rounds of a worker at a time


class TooSlow(BaseException):
    """A read takes longer than the limit."""


def main() -> int:
    options = read_options()
    if options.worker:
        _work(options)
        return 0
    if options.only is not None:
        options.first, options.rounds = options.only, 1
        return int(any(rounds(options, [options.subject or "yaml"])))
    names = [options.subject] if options.subject else list(SUBJECTS)
    found = total = 0
    end = time.monotonic() + options.seconds
    while total < options.rounds and time.monotonic() < end:
        for name in names:
            done, problems = _supervise(name, options, total)
            found += problems
        total += done
        _print(f"{total * len(names):,} rounds, {found} findings")
    return int(found > 0)


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--subject", choices=list(SUBJECTS))
    parser.add_argument("--rounds", type=int, default=10**9, help="of each subject")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this round alone, in this process")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for one read")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _supervise(name: str, options: argparse.Namespace, first: int) -> tuple[int, int]:
    """Rounds from `first` on in workers; returns how many, and the findings."""
    count, found, start = min(_TOGETHER, options.rounds - first), 0, first
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "round")
        while start < first + count:
            note.write_text(str(start))
            command = [
                *(sys.executable, __file__, "--subject", name, "--seed", str(options.seed)),
                *("--first", str(start), "--rounds", str(first + count - start)),
                *("--limit", str(options.limit), "--out", str(options.out), "--worker", str(note)),
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            found += done.stdout.count("FINDING")
            sys.stdout.write(done.stdout)
            if done.returncode == 0:
                break
            number = int(note.read_text())
            _tell(options, name, number, f"the process died: exit code {done.returncode}")
            found, start = found + 1, number + 1
    return count, found


def _work(options: argparse.Namespace) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    list(rounds(options, [options.subject]))


def rounds(options: argparse.Namespace, names: list[str]) -> Iterator[str]:
    """Yields what was found."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    for name in names:
        with tempfile.TemporaryDirectory() as parent:
            sound = Path(parent, "sound")
            sound.mkdir()
            files = SUBJECTS[name].make(sound)
            _problem(name, sound, 1000.0)  # imports and compiles: not the fault of damage
            for number in range(options.first, options.first + options.rounds):
                if options.worker:
                    options.worker.write_text(str(number))
                problem = _round(name, sound, Path(parent, "damaged"), files, number, options)
                if problem is not None:
                    yield problem


def _round(
    name: str, sound: Path, folder: Path, files: list[str], number: int, options: argparse.Namespace
) -> str | None:
    chance = random.Random(f"{name} {options.seed} {number}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    victim = folder / chance.choice(files)
    victim.write_bytes(mutate(victim.read_bytes(), chance))
    SUBJECTS[name].after(folder)
    problem = _problem(name, folder, options.limit)
    if problem is not None:
        _tell(options, name, number, problem)
        options.out.mkdir(parents=True, exist_ok=True)
        shutil.copy(victim, options.out / f"{name}-{options.seed}-{number}-{victim.name}")
        if options.only is not None:
            _print(problem)
    return problem


def _problem(name: str, folder: Path, limit: float) -> str | None:
    """What is wrong with how the damaged files are read; None: nothing."""
    from trafo.errors import TrafoError

    def too_slow(*_: object) -> None:
        _limit(signal.SIG_IGN, 0)  # once
        raise TooSlow

    _limit(too_slow, limit)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            SUBJECTS[name].read(folder)
    except (TrafoError, MemoryError):
        pass  # one line on the command line
    except OSError as error:
        if error.filename is None:
            return traceback.format_exc()
    except TooSlow:
        return f"more than {limit} s\n{traceback.format_exc()}"
    except Exception:
        return traceback.format_exc()
    finally:
        _limit(signal.SIG_IGN, 0)
    return None


def _limit(handler: Any, seconds: float) -> None:
    """Of processor time, since machines are busy; of waiting, a hundred times as much."""
    signal.signal(signal.SIGPROF, handler)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 100 * seconds)


def _tell(options: argparse.Namespace, name: str, number: int, problem: str) -> None:
    last = [line for line in problem.strip().splitlines() if line.strip()][-1]
    again = f"python tests/fuzz/fuzz.py --subject {name} --seed {options.seed} --only {number}"
    _print(f"FINDING {name}: {last[:160]}\n  {again}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
