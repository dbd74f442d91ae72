"""The service under load: many streams at once, clients that die, SIGTERM while it works.

1. 200 streams at once: all complete, none mixed up (each is compared with what the bare engine
   writes for the same prompt), memory bounded; first token and gaps at p50, p95 and p99.
2. The same, and every fourth client goes away in the middle: the others lose nothing.
3. The same, the server's messages go to a full disk, and SIGTERM comes while all clients read:
   every stream that was accepted is finished, and the server ends with code 0.

Bounded in number and time: `--streams`, `--seconds`.
"""

import argparse
import asyncio
import os
import random
import signal
import tempfile
from pathlib import Path

import psutil

from model_peers import CONFIG
from serving_client import (
    Stream,
    make_bundle,
    make_tokenizer,
    percentile,
    process,
    serve_trafo,
    stream,
)
from trafo.generate.config import GenerationConfig
from trafo.generate.engine import EngineConfig, build_engine
from trafo.generate.request import Request

NEW_TOKENS = 48


def bodies(number: int) -> list[dict[str, object]]:
    """Prompts of many lengths, some with an equal beginning, greedy and sampled."""
    chance = random.Random(0)
    shared = [chance.randrange(CONFIG.vocab_size - 1) for _ in range(64)]
    return [
        {
            "prompt": shared[: chance.choice([0, 0, 32, 64])]
            + [chance.randrange(CONFIG.vocab_size - 1) for _ in range(chance.randrange(1, 60))],
            "max_tokens": chance.randrange(8, NEW_TOKENS),
            "temperature": chance.choice([0, 1]),
            "seed": i,
        }
        for i in range(number)
    ]


def expected(tokenizer: Path, asked: list[dict[str, object]], weights: str) -> list[str]:
    """What each request gets alone, from the bare engine in this process."""
    bundle = make_bundle(tokenizer)
    engine = build_engine(bundle.model, EngineConfig(max_running=1, weights=weights))
    texts: dict[Request, str] = {}
    for body in asked:
        config = GenerationConfig(
            max_new_tokens=body["max_tokens"], temperature=body["temperature"], seed=body["seed"]
        )
        request = Request.of(body["prompt"], config, bundle.tokenizer)
        texts[request] = ""
        engine.add(request)
    while engine.has_work:
        for request, piece in engine.step():
            texts[request] += piece.text
    return list(texts.values())


async def crowd(port: int, asked: list[dict[str, object]], leaving: int) -> list[Stream]:
    """All streams at once; every `leaving`-th client goes away after three tokens."""
    tasks = [
        stream(port, body, leave_after=3 if leaving and i % leaving == 0 else None)
        for i, body in enumerate(asked)
    ]
    return list(await asyncio.gather(*tasks))


async def crowd_and_signal(
    port: int, asked: list[dict[str, object]], pid: int
) -> list[Stream | BaseException]:
    """SIGTERM once all streams have been accepted."""
    tasks = [asyncio.ensure_future(stream(port, body)) for body in asked]
    await asyncio.sleep(1.0)
    os.kill(pid, signal.SIGTERM)
    return list(await asyncio.gather(*tasks, return_exceptions=True))


def check(streams: list[Stream], texts: list[str], leaving: int = 0) -> str:
    kept = [i for i in range(len(streams)) if not leaving or i % leaving]
    complete = sum(streams[i].is_complete for i in kept)
    right = sum(streams[i].text == texts[i] for i in kept)
    return f"{complete} of {len(kept)} complete, {right} with the text they get alone"


def report(streams: list[Stream]) -> None:
    firsts = [each.first for each in streams if each.times]
    gaps = [gap for each in streams for gap in each.gaps]
    for name, numbers in (("first token", firsts), ("gap", gaps)):
        figures = [
            f"p{int(100 * p)} {1000 * percentile(numbers, p):,.0f} ms" for p in (0.5, 0.95, 0.99)
        ]
        print(f"  {name:<12}{', '.join(figures)}")


def serve_to_full_disk(port: int, tokenizer: Path, weights: str, threads: int) -> None:
    """Messages go where nothing can be written."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)
    serve_trafo(port, tokenizer, weights, threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120, help="most time for each part")
    parser.add_argument("--weights", default="float32", choices=["float32", "int8"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    arguments = options.weights, options.threads
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = make_tokenizer(Path(scratch))
        asked = bodies(options.streams)
        config = EngineConfig(weights=options.weights)
        print(f"{options.streams} streams at once, {config.max_running} decoded together")
        texts = expected(tokenizer, asked, options.weights)
        with process(serve_trafo, tokenizer, *arguments) as (server, port):
            memory = psutil.Process(server.pid).memory_info
            before = memory().rss
            for leaving in (0, 4):
                streams = asyncio.run(
                    asyncio.wait_for(crowd(port, asked, leaving), options.seconds)
                )
                print("\nclients that die" if leaving else "\nall stay")
                print(f"  {check(streams, texts, leaving)}")
                report(streams)
                print(f"  memory {memory().rss / 2**20:,.0f} MB, {before / 2**20:,.0f} MB before")
        target = serve_to_full_disk
        with process(target, tokenizer, *arguments) as (server, port):
            streams = asyncio.run(
                asyncio.wait_for(crowd_and_signal(port, asked, server.pid), options.seconds)
            )
            server.join(30)
            accepted = [i for i, each in enumerate(streams) if isinstance(each, Stream)]
            done = [streams[i] for i in accepted]
            print("\nSIGTERM while all read, messages to a full disk")
            print(f"  {len(done)} accepted: {check(done, [texts[i] for i in accepted])}")
            print(f"  exit code {server.exitcode}")


if __name__ == "__main__":
    main()
