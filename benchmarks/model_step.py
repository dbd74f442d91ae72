"""A training step and a forward pass of a small language model, against the models of others.

Vocabulary 10,000, context 256, d_model 512, 4 layers, 16 heads, d_ff 1,344, float32. Everyone runs
eagerly and compiled, in turn; the better of the two counts. FLOPs are those of `trafo.account`.
Then mixed precision, eagerly: all under torch's bfloat16 autocast.

Memory is what torch allocates during a step, summed up from the events of its allocator: weights
and gradients are there before the step begins, so the peak is what comes on top of them.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from model_peers import CONFIG, Contender, contenders
from timing import Contenders, Result, compare, silence
from trafo.account import Workload, account

BATCH = 8
WAYS = {"eager": False, "compiled": True}


def training(
    everyone: dict[str, Contender],
    ways: dict[str, bool],
    rounds: int,
    dtype: torch.dtype = torch.float32,
) -> Result:
    ids = torch.randint(CONFIG.vocab_size, (2, BATCH, CONFIG.context_length))
    runs: Contenders = {
        f"{name}, {way}": contender.step(*ids, compiled=compiled, dtype=dtype)
        for name, contender in everyone.items()
        for way, compiled in ways.items()
    }
    name = str(dtype).removeprefix("torch.")
    what = f"forward + loss + backward, batch {BATCH} x {CONFIG.context_length} tokens, {name}"
    result = compare(what, runs, amount=ids[0].numel(), unit="tokens", rounds=rounds)
    return best_of_both(result)


def forward(everyone: dict[str, Contender], ways: dict[str, bool], rounds: int) -> None:
    ids = torch.randint(CONFIG.vocab_size, (1, CONFIG.context_length))
    runs: Contenders = {}
    for name, contender in everyone.items():
        for way, compiled in ways.items():
            run = contender.forward(ids, compiled=compiled)
            if run is not None:
                runs[f"{name}, {way}"] = run
    what = f"forward only, 1 x {CONFIG.context_length} tokens, all logits"
    result = compare(what, runs, amount=ids.numel(), unit="tokens", rounds=4 * rounds)
    best_of_both(result)


def best_of_both(result: Result) -> Result:
    """Each contender's faster way."""
    best: dict[str, list[float]] = {}
    for name, seconds in result.seconds.items():
        who = name.split(",")[0]
        if who not in best or statistics.median(seconds) < statistics.median(best[who]):
            best[who] = seconds
    chosen = Result(f"{result.what}: the better of both ways", result.amount, result.unit, best)
    chosen.show()
    return chosen


def memory(everyone: dict[str, Contender]) -> None:
    """Peak bytes of a step above weights and gradients, run eagerly."""
    ids, targets = torch.randint(CONFIG.vocab_size, (2, BATCH, CONFIG.context_length))
    peaks: dict[str, int] = {}
    for name, contender in everyone.items():
        contender.model.zero_grad(set_to_none=True)
        contender.loss(ids, targets).backward()  # now the gradients exist
        peaks[name] = peak_bytes(lambda c=contender: c.loss(ids, targets).backward())
        contender.model.zero_grad(set_to_none=True)
    print("\npeak memory of a step above weights and gradients, eager")
    for name, peak in peaks.items():
        ratio = "" if name == "trafo" else f"   trafo needs {peaks['trafo'] / peak:.2f} x of that"
        print(f"  {name:<34}{peak / 1e6:>15.0f} MB{ratio}")


def peak_bytes(run: Callable[[], object]) -> int:
    """The highest sum of allocations minus frees while `run` runs."""
    with silence(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    assert recorded.profiler is not None
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def product_peak() -> float:
    """FLOP/s of the fastest of some large matrix products, as torch computes them here."""
    a, b, c = (torch.randn(2048, 2048) for _ in range(3))
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        torch.mm(a, b, out=c)
        seconds.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(seconds)


def share_of_peak(step: Result, peak: float) -> None:
    work = Workload(seq=CONFIG.context_length, batch_size=BATCH)
    flops = account(CONFIG, work).flops
    print(
        f"\nmatrix products: {peak / 1e9:.0f} GFLOP/s at best; a step takes {flops / 1e9:.0f} GFLOP"
    )
    for name, seconds in step.seconds.items():
        rate = flops / statistics.median(seconds)
        print(f"  {name:<34}{rate / 1e9:>10.0f} GFLOP/s   {100 * rate / peak:.0f} % of the peak")


def measure(rounds: int, nanogpt: Path | None = None, *, compiled: bool = True) -> None:
    torch.manual_seed(0)
    everyone = contenders(nanogpt)
    ways = WAYS if compiled else {"eager": False}
    memory(everyone)
    before = product_peak()
    step = training(everyone, ways, rounds)
    share_of_peak(step, max(before, product_peak()))
    training(everyone, {"eager": False}, rounds, torch.bfloat16)
    forward(everyone, ways, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of karpathy/nanoGPT")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None, help="default: one for each core")
    parser.add_argument("--eager", action="store_true", help="do not compile, which takes long")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)
    measure(options.rounds, options.nanogpt, compiled=not options.eager)
