"""What both serving benchmarks share: a model, servers in processes of their own, a light client.

The client speaks HTTP by hand over asyncio: on few cores a client library would take a good part of
the time that is measured.
"""

import asyncio
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from model_peers import CONFIG
from trafo.checkpoint.bundle import Bundle
from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer
from trafo.tokenizer.formats.load import load_any

HOST = "127.0.0.1"


@dataclass
class Stream:
    """One streamed answer: when its parts came, and what they said."""

    begin: float
    times: list[float] = field(default_factory=list)
    text: str = ""
    is_complete: bool = False

    @property
    def first(self) -> float:
        return self.times[0] - self.begin

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


async def stream(port: int, body: dict[str, object], *, leave_after: int | None = None) -> Stream:
    """Send a request, read its events; `leave_after` so many of them the client goes away."""
    reader, writer = await asyncio.open_connection(HOST, port)
    content = json.dumps(body | {"stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    result = Stream(time.perf_counter())
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    try:
        async for line in reader:
            if not line.startswith(b"data: "):
                if line.startswith(b"HTTP/1.1 ") and b" 200 " not in line:
                    raise RuntimeError(line.decode().strip())
                continue
            if line.startswith(b"data: [DONE]"):
                result.is_complete = True
                break
            choices = json.loads(line[6:]).get("choices")
            if choices and choices[0].get("text"):
                result.times.append(time.perf_counter())
                result.text += choices[0]["text"]
            if leave_after is not None and len(result.times) >= leave_after:
                break
    finally:
        writer.close()
    return result


async def stream_all(port: int, bodies: list[dict[str, object]]) -> list[Stream]:
    """All at once."""
    return list(await asyncio.gather(*(stream(port, body) for body in bodies)))


def make_bundle(tokenizer: Path) -> Bundle:
    """The same random weights in every process."""
    torch.manual_seed(0)
    model = TransformerLM.from_config(CONFIG).eval()
    return Bundle(model, Tokenizer.from_spec(load_any(tokenizer)), Path("random"), 0)


def make_tokenizer(folder: Path) -> Path:
    """As many tokens as the model has, from the sources of Python's library."""
    from trafo.data.corpora import build_corpus
    from trafo.tokenizer import Tokenizer, train_tokenizer

    text = build_corpus(folder / "corpus")
    trained = train_tokenizer(text, CONFIG.vocab_size, ["<|endoftext|>"])
    Tokenizer.from_spec(trained.spec).save(folder / "tokenizer")
    return folder / "tokenizer"


def serve_trafo(port: int, tokenizer: Path, weights: str, threads: int) -> None:
    """Our service; runs until it is terminated."""
    from trafo.generate.engine import EngineConfig, build_engine
    from trafo.runtime.threads import in_short_thread
    from trafo.serve.app import App
    from trafo.serve.config import ServeConfig
    from trafo.serve.models import Models, ServedModel
    from trafo.serve.server import Server
    from trafo.serve.worker import Worker

    torch.set_num_threads(threads)
    bundle = in_short_thread(lambda: make_bundle(tokenizer))
    config = EngineConfig(weights=weights, threads=threads)
    engine = in_short_thread(lambda: build_engine(bundle.model, config))
    model = ServedModel("random", Path("random"), bundle, [Worker(engine)])
    Server(App(Models([model]), ServeConfig(port=port))).run()


@contextmanager
def process(target: Callable[..., None], *arguments: object) -> Iterator[tuple[BaseProcess, int]]:
    """A server in a process of its own: it, and the port on which it answers."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    server = multiprocessing.get_context("spawn").Process(target=target, args=(port, *arguments))
    server.start()
    try:
        wait_for(server, port)
        yield server, port
    finally:
        server.terminate()
        server.join(30)
        if server.is_alive():
            server.kill()


def wait_for(server: BaseProcess, port: int, seconds: float = 300.0) -> None:
    """Until it takes connections and has answered a first request."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.is_alive():
        try:
            asyncio.run(stream(port, {"prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0}))
        except (OSError, RuntimeError):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError("the server did not start")


def percentile(numbers: list[float], share: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
