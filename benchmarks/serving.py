"""The service, against llama.cpp's server: the same weights, the same number of threads.

Vocabulary 10,000, context 256, d_model 512, 4 layers, 16 heads, d_ff 1,344, random weights; prompts
of 16 ids, 64 new tokens, greedy, streamed to 1, 8 and 32 clients at once. llama.cpp gets the
weights by our GGUF export, as float32 and as Q8_0. Every server runs in a process of its own, one
at a time, in turn. Then what HTTP costs: the same requests on the bare engine.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from model_peers import CONFIG
from serving_client import (
    Stream,
    make_bundle,
    make_tokenizer,
    percentile,
    process,
    serve_trafo,
    stream_all,
)
from timing import silence

STREAMS = (1, 8, 32)
Rates = dict[str, dict[int, list[float]]]
PROMPT_TOKENS, NEW_TOKENS = 16, 64
END = CONFIG.vocab_size - 1
"""id of the end token, which must not end a stream early"""


def bodies(number: int, seed: int) -> list[dict[str, object]]:
    """Prompts that have nothing in common, new in every round: no server can reuse one."""
    chance = random.Random(f"{number} {seed}")
    return [
        {
            "prompt": [chance.randrange(300, CONFIG.vocab_size) for _ in range(PROMPT_TOKENS)],
            "max_tokens": NEW_TOKENS,
            "temperature": 0,
            "logit_bias": {str(END): -100.0},
        }
        for _ in range(number)
    ]


def serve_llama(port: int, file: Path, threads: int) -> None:
    """llama.cpp's own server."""
    import os

    import xllamacpp

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it logs every token
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = max(STREAMS)
    params.n_ctx = max(STREAMS) * CONFIG.context_length
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.warmup = True
    server = xllamacpp.Server(params)
    while server:
        time.sleep(1)


def export(tokenizer: Path, files: dict[str, Path]) -> None:
    """The weights for llama.cpp, as float32 and as Q8_0 (by the gguf package)."""
    import gguf

    from trafo.checkpoint.convert import gguf_file

    bundle = make_bundle(tokenizer)
    ours = gguf_file._storage
    for name, file in files.items():
        kind = gguf.GGMLQuantizationType[name]
        full = gguf.GGMLQuantizationType.F32
        gguf_file._storage = lambda _, tensor, __, kind=kind, full=full: (
            kind if tensor.ndim > 1 else full
        )
        with silence():
            gguf_file.save_gguf(bundle.model, file, tokenizer=bundle.tokenizer)
    gguf_file._storage = ours


def measure(port: int, number: int, seed: int) -> tuple[float, list[Stream]]:
    """Tokens per second in total."""
    begin = time.perf_counter()
    streams = asyncio.run(stream_all(port, bodies(number, seed)))
    seconds = time.perf_counter() - begin
    assert all(each.is_complete for each in streams)
    return number * NEW_TOKENS / seconds, streams


def bare(port: int, tokenizer: Path, weights: str, threads: int, results: Path) -> None:
    """The same requests on the engine alone, in a process of its own."""
    import json

    from trafo.generate.config import GenerationConfig
    from trafo.generate.engine import EngineConfig, build_engine
    from trafo.generate.request import Request

    model = make_bundle(tokenizer).model
    engine = build_engine(model, EngineConfig(weights=weights, threads=threads))
    config = GenerationConfig(max_new_tokens=NEW_TOKENS, temperature=0.0)
    rates = defaultdict(list)
    for seed in range(4):
        for number in STREAMS:
            begin = time.perf_counter()
            for body in bodies(number, 1000 + seed):
                engine.add(Request(body["prompt"], config))
            while engine.has_work:
                engine.step()
            rates[number].append(number * NEW_TOKENS / (time.perf_counter() - begin))
    results.write_text(json.dumps({n: max(rate) for n, rate in rates.items()}))


def run_bare(tokenizer: Path, weights: str, threads: int, folder: Path) -> dict[int, float]:
    import json
    import multiprocessing

    results = folder / f"bare-{weights}.json"
    arguments = (0, tokenizer, weights, threads, results)
    child = multiprocessing.get_context("spawn").Process(target=bare, args=arguments)
    child.start()
    child.join()
    return {int(number): rate for number, rate in json.loads(results.read_text()).items()}


def show(rates: Rates, firsts: Rates) -> None:
    pairs = {"trafo float32": "llama.cpp F32", "trafo int8": "llama.cpp Q8_0"}
    for number in STREAMS:
        print(f"\n{number} streams" if number > 1 else "\n1 stream")
        for name in rates:
            rate = statistics.median(rates[name][number])
            p95 = percentile(firsts[name][number], 0.95) * 1000
            line = f"  {name:<16}{rate:>8,.0f} tokens/s   first token p95 {p95:>6,.0f} ms"
            if name in pairs:
                peer = rates[pairs[name]][number]
                ratios = [a / b for a, b in zip(rates[name][number], peer, strict=True)]
                low, high = min(ratios), max(ratios)
                line += (
                    f"   {statistics.median(ratios):.2f} x {pairs[name]} ({low:.2f} to {high:.2f})"
                )
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2, help="per number of streams and round")
    parser.add_argument(
        "--folder", type=Path, help="keeps the files for llama.cpp for the next run"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, options.folder or Path(scratch))


def run(options: argparse.Namespace, folder: Path) -> None:
    tokenizer = folder / "tokenizer"
    files = {"F32": folder / "f32.gguf", "Q8_0": folder / "q8_0.gguf"}
    if not files["Q8_0"].exists():
        tokenizer = make_tokenizer(folder)
        export(tokenizer, files)
    threads = options.threads
    contenders = {
        "trafo float32": partial(process, serve_trafo, tokenizer, "float32", threads),
        "llama.cpp F32": partial(process, serve_llama, files["F32"], threads),
        "trafo int8": partial(process, serve_trafo, tokenizer, "int8", threads),
        "llama.cpp Q8_0": partial(process, serve_llama, files["Q8_0"], threads),
    }
    rates: Rates = {name: defaultdict(list) for name in contenders}
    firsts: Rates = {name: defaultdict(list) for name in contenders}
    for number in range(options.rounds):
        for name, start in contenders.items():
            with start() as (_, port):
                for count in STREAMS:
                    runs = [measure(port, count, 100 * number + i) for i in range(options.repeats)]
                    rates[name][count].append(max(rate for rate, _ in runs))
                    firsts[name][count] += [s.first for _, streams in runs for s in streams]
            seen = ", ".join(f"{rates[name][count][-1]:,.0f}" for count in STREAMS)
            print(f"round {number + 1}: {name:<16}{seen} tokens/s", file=sys.stderr)
    show(rates, firsts)
    print("\nwhat HTTP costs: trafo's bare engine, the same requests")
    for weights in ("float32", "int8"):
        for count, rate in run_bare(tokenizer, weights, threads, folder).items():
            share = 1 - max(rates[f"trafo {weights}"][count]) / rate
            line = f"  {weights:<8}{count:>3} streams {rate:>8,.0f} tokens/s"
            print(f"{line}, HTTP takes {share:.0%}")


if __name__ == "__main__":
    main()
