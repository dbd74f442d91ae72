"""The path of a text through every stage, in an environment that has only what a user installs.

Runs in an empty folder. What comes out is checked against what went in: decoded text is the text,
a resumed run has all its steps, an exported model has the loss of the one it came from.
"""

import io
import json
import math
import subprocess
import sys
import time
import urllib.request
from contextlib import redirect_stdout
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

TEXT = "The quick brown fox jumps over the lazy dog, Größe 12345 und 猫 🙂.\nShe can't.\n" * 200
SMALL = ["--model.d-model", "32", "--model.num-layers", "1", "--model.num-heads", "2"]
SMALL += ["--model.context-length", "32", "--batch-size", "4", "--threads", "1"]
SHOWN = ("numpy", "numba", "torch", "PyYAML", "pydantic", "starlette")


def check_environment() -> None:
    """Everything comes from the environment, and nothing for developers is there."""
    import trafo

    assert Path(trafo.__file__).is_relative_to(sys.prefix), trafo.__file__
    for package in ("pytest", "hypothesis", "beartype", "tokenizers"):
        assert find_spec(package) is None, package


def run(*arguments: object) -> str:
    """What a command prints."""
    from trafo.cli.main import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out):
        code = main([*map(str, arguments), "--quiet"])
        out.flush()
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert code == 0, f"trafo {arguments} ended with {code}: {printed}"
    return printed


def show_every_help() -> None:
    from trafo.cli.verbs import VERBS, Group

    assert "usage" in run("--help")
    for name, entry in VERBS.items():
        for words in [[name, sub] for sub in entry.verbs] if isinstance(entry, Group) else [[name]]:
            assert "usage" in run(*words, "--help")


def tokenize() -> None:
    import pyarrow as pa
    from pyarrow import parquet

    Path("text.txt").write_text(TEXT, encoding="utf-8")
    parquet.write_table(pa.table({"text": TEXT.splitlines(keepends=True)}), "text.parquet")
    for source, out in (("text.txt", "tok"), ("text.parquet", "tok2")):
        run("tokenizer", "train", source, "--vocab-size", 300, "--out", out)
    run("tokenizer", "encode", "tok", "text.txt", "--out", "text.tokens")
    run("tokenizer", "report", "tok", "text.txt")
    run("tokenizer", "convert", "tok", "tokenizer.json")

    from trafo import Tokenizer

    for name in ("tok", "tok2", "tokenizer.json"):
        tokenizer = Tokenizer.load(name)
        ids = tokenizer.encode(TEXT)
        assert len(ids) < len(TEXT.encode()) / 2
        assert tokenizer.decode(ids) == TEXT


def train() -> None:
    run("train", "text.txt", "--steps", 4, "--out", "run", *SMALL)
    run("resume", "run", "--steps", 8)
    metrics = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert {r["step"] for r in metrics if r["kind"] == "train"} >= {4, 8}
    assert Path("run/loss.png").read_bytes().startswith(b"\x89PNG")
    assert list(Path("run/tensorboard").iterdir())
    run("runs", ".")
    run("plot", "run", "--out", "curves.png")


def loss_of(model: str) -> float:
    return float(json.loads(run("eval", model, "text.txt", "--json"))["loss"])


def use_model() -> None:
    loss = loss_of("run")
    assert 0 < loss < math.log(300) + 1
    run("export", "run", "--out", "hf")
    run("export", "run", "--out", "model.gguf")
    for exported in ("hf", "model.gguf"):
        assert math.isclose(loss_of(exported), loss, rel_tol=1e-4), exported
    text = run("generate", "run", "--prompt", "The quick", "--max-new-tokens", 8, "--seed", 1)
    assert text.startswith("The quick")
    run("average", "run", "--last", 1)
    run("account", "run")
    run("account", "gpt2")


def serve() -> None:
    """One request to a process of its own."""
    command = [sys.executable, "-I", "-m", "trafo", "serve", "run", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as server:
        try:
            assert server.stderr
            address = next(
                word
                for line in server.stderr
                for word in line.split()
                if word.startswith("http://")
            ).rstrip("/,;")
            body = {"model": "run", "prompt": "The quick", "max_tokens": 4, "seed": 1}
            request = urllib.request.Request(
                f"{address}/v1/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=120) as answer:
                assert json.load(answer)["usage"]["completion_tokens"] == 4
        finally:
            server.terminate()


def main() -> None:
    check_environment()
    for stage in (show_every_help, tokenize, train, use_model, serve):
        start = time.perf_counter()
        stage()
        sys.stderr.write(f"{stage.__name__} {time.perf_counter() - start:.0f} s\n")
    sys.stdout.write(" ".join(f"{name} {version(name)}" for name in SHOWN) + "\n")


if __name__ == "__main__":
    main()
