"""trafo and a peer alternate in one process, for several rounds: ratios and their spread.

The machine may be noisy, so absolute times prove nothing. Each round runs every contender once,
and a ratio compares two runs of the same round.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Contenders = dict[str, Callable[[], object]]


@dataclass
class Result:
    """Seconds per round of each contender; the first is us."""

    what: str
    amount: float  # of `unit` that one run handles
    unit: str
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Name, rate, median ratio to us, and the lowest and highest ratio."""
        us, *peers = self.seconds
        for name in (us, *peers):
            rate = f"{self.amount / statistics.median(self.seconds[name]):,.1f} {self.unit}/s"
            if name == us:
                yield name, rate, "", ""
                continue
            rounds = zip(self.seconds[name], self.seconds[us], strict=True)
            ratios = [peer / ours for peer, ours in rounds]
            median = f"{statistics.median(ratios):.2f} x"
            yield name, rate, median, f"{min(ratios):.2f} to {max(ratios):.2f}"

    def show(self) -> None:
        print(f"\n{self.what}")
        for name, rate, ratio, spread in self.rows():
            faster = f"   trafo is {ratio} as fast ({spread})" if ratio else ""
            print(f"  {name:<34}{rate:>18}{faster}")


def compare(
    what: str,
    contenders: Contenders,
    *,
    amount: float,
    unit: str,
    rounds: int,
    warm_up: bool = True,
) -> Result:
    """Run the contenders one after the other, and again in every round."""
    result = Result(what, amount, unit, {name: [] for name in contenders})
    if warm_up:
        for run in contenders.values():
            with silence():
                run()
    for number in range(rounds):
        for name, run in contenders.items():
            print(f"\r{what}: round {number + 1} of {rounds}, {name:<40}", end="", file=sys.stderr)
            with silence():
                start = time.perf_counter()
                run()
                result.seconds[name].append(time.perf_counter() - start)
    print("\r" + " " * 110, end="\r", file=sys.stderr)
    result.show()
    return result


@contextmanager
def silence() -> Iterator[None]:
    """Hide the output of peers, of their native code too."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        for number, copy in enumerate(saved, start=1):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
