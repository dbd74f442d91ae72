"""Every kind of file that trafo reads: how to make a sound one, and what reads it.

A subject makes its files in a folder once. Each round changes one of them and calls `read`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

TEXT = "The cat sat on the mat. Größer 漢字 <|endoftext|> 12345 don't.\n" * 8


@dataclass(frozen=True)
class Subject:
    """Files to damage, and what reads them."""

    make: Callable[[Path], list[str]]
    """write sound files into a folder; returns the names of those to damage"""
    read: Callable[[Path], object]
    after: Callable[[Path], object] = field(default=lambda folder: None)
    """run after the damage, such as making check sums fit again"""


def small_tokenizer() -> Any:
    from trafo.tokenizer import Tokenizer

    vocab = {i: bytes([i]) for i in range(256)}
    merges = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"a", b"t")]
    for one, other in merges:
        vocab[len(vocab)] = one + other
    return Tokenizer(vocab, merges, ["<|endoftext|>"])


def small_model() -> Any:
    import torch

    from trafo.models import TransformerLM

    torch.manual_seed(0)
    return TransformerLM(261, 16, 8, 1, 2, 16)


# --- settings


def make_yaml(folder: Path) -> list[str]:
    from trafo.config import to_yaml
    from trafo.training.config import TrainConfig

    (folder / "config.yaml").write_text(to_yaml(TrainConfig(text=("a.txt",))))
    return ["config.yaml"]


def read_yaml(folder: Path) -> None:
    from trafo.config import load
    from trafo.training.config import TrainConfig

    load(TrainConfig, folder / "config.yaml")


# --- runs


def make_run(folder: Path) -> list[str]:
    from trafo.checkpoint.bundle import describe_model
    from trafo.checkpoint.snapshot import take
    from trafo.checkpoint.store import CheckpointStore
    from trafo.optim import AdamW
    from trafo.training.config import TrainConfig
    from trafo.training.run import Run

    model = small_model()
    run = Run.new(TrainConfig(text=("a.txt",), out=folder / "run", model=model.config))
    small_tokenizer().save(run.tokenizer_folder)
    snapshot = take(model, [AdamW(model.parameters())])
    plan = {"steps": 4, "planned_steps": 4, "evaluate_every": 1, "evaluate_tokens": 9}
    plan |= {"sample_every": 0, "checkpoint_every": 1, "asked_steps": 4, "asked_budget": None}
    state = {"plan": plan, "step": 3, "best_loss": 1.5, "data": {"tokenizer": "x"}}
    CheckpointStore(run.checkpoint_folder).save(
        3, snapshot, state, describe_model(model, model.config), is_best=True
    )
    about = {"step": 1, "seconds": 1.0, "loss": 2.5}
    train = {"kind": "train", "lr": 0.1, "grad_norm": 1.0, "tokens_per_second": 9.0}
    valid = {"kind": "validation", "bits_per_byte": 1.0, "perplexity": 3.0, "tokens": 4}
    lines = [about | train, about | valid, about | train | {"step": 2, "utilisation": 0.1}]
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    checkpoint = "run/checkpoints/step-00000003"
    return [
        *("run/config.yaml", "run/metrics.jsonl", "run/checkpoints/best.json"),
        *("run/tokenizer/trafo.json", f"{checkpoint}/manifest.json", f"{checkpoint}/state.json"),
        f"{checkpoint}/model.safetensors",
    ]


def read_run(folder: Path) -> None:
    from trafo.cli.runs import _cells, _row
    from trafo.training.run import Run

    reads: list[Callable[[], object]] = [
        lambda: _load_bundle(folder / "run"),
        lambda: _load_newest(folder / "run"),
    ]
    # These read two files only, and take ten times as long as all else.
    if _is_damaged(folder, "run/config.yaml") or _is_damaged(folder, "run/metrics.jsonl"):
        reads.append(lambda: list(_cells(_row(folder / "run"))))
    if _is_damaged(folder, "run/metrics.jsonl"):
        reads.append(lambda: _draw_sometimes(Run(folder / "run").metrics, folder / "loss.png"))
    _each(*reads)


def _is_damaged(folder: Path, name: str) -> bool:
    """Whether it differs from the sound file beside `folder`; of sound files, True."""
    sound = folder.parent / "sound"
    return folder == sound or (folder / name).read_bytes() != (sound / name).read_bytes()


def _draw_sometimes(records: list[dict[str, Any]], picture: Path) -> None:
    """Once in 16 different files: a picture takes a hundred times as long as all else."""
    from trafo.training.curve import draw_curves

    if crc32(repr(records).encode()) % 16 == 0:
        draw_curves({"x": records}, picture)


def make_checkpoint(folder: Path) -> list[str]:
    """Files of a checkpoint whose check sums are made to fit: the damage comes through."""
    names = make_run(folder)
    training = "run/checkpoints/step-00000003/training.safetensors"
    return [*(name for name in names if "step-" in name and "manifest" not in name), training]


def fix_check_sums(folder: Path) -> None:
    path = folder / "run/checkpoints/step-00000003"
    manifest = json.loads((path / "manifest.json").read_text())
    for name in manifest["files"]:
        data = (path / name).read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        manifest["files"][name] = _like(manifest["files"][name], len(data), sha256)
    (path / "manifest.json").write_text(json.dumps(manifest))


def _like(entry: Any, size: int, sha256: str) -> Any:
    assert isinstance(entry, dict)
    return {key: size if isinstance(value, int) else sha256 for key, value in entry.items()}


def read_checkpoint(folder: Path) -> None:
    _each(lambda: _load_bundle(folder / "run"), lambda: _load_newest(folder / "run"))


def _load_bundle(path: Path) -> None:
    from trafo.checkpoint.bundle import load_bundle
    from trafo.generate import GenerationConfig, generate

    bundle = load_bundle(path)
    generate(bundle.model, bundle.tokenizer, ["the"], GenerationConfig(max_new_tokens=2))


def _load_newest(path: Path) -> None:
    from trafo.checkpoint.snapshot import restore
    from trafo.checkpoint.store import CheckpointStore
    from trafo.optim import AdamW
    from trafo.training.run import TrainerState

    found = CheckpointStore(path / "checkpoints").newest()
    model = small_model()
    restore(found.snapshot, model, [AdamW(model.parameters())])
    found.state.pop("data", None)
    TrainerState.from_json(found.state)


def make_single_file(folder: Path) -> list[str]:
    from trafo.checkpoint import save_checkpoint
    from trafo.optim import AdamW

    model = small_model()
    save_checkpoint(model, AdamW(model.parameters()), 3, folder / "a.ckpt")
    return ["a.ckpt"]


def read_single_file(folder: Path) -> None:
    from trafo.checkpoint import load_checkpoint
    from trafo.optim import AdamW

    model = small_model()
    load_checkpoint(folder / "a.ckpt", model, AdamW(model.parameters()))


# --- models of other programs


def make_hugging_face(folder: Path) -> list[str]:
    from trafo.checkpoint.convert.hugging_face import save_hugging_face

    save_hugging_face(small_model(), folder / "hf", tokenizer=small_tokenizer())
    return [f"hf/{path.name}" for path in sorted((folder / "hf").iterdir())]


def make_gguf(folder: Path) -> list[str]:
    from trafo.checkpoint.convert.gguf_file import save_gguf

    save_gguf(small_model(), folder / "a.gguf", tokenizer=small_tokenizer())
    return ["a.gguf"]


def make_llama2c(folder: Path) -> list[str]:
    from trafo.checkpoint.convert.llama2c import save_llama2c

    save_llama2c(small_model(), folder / "a.bin", tokenizer=small_tokenizer())
    return ["a.bin"]


# --- tokenizers and token files


def make_tokenizers(folder: Path) -> list[str]:
    from trafo.tokenizer.formats.load import save_as

    spec = small_tokenizer().spec
    save_as(spec, folder / "trafo", "trafo")
    save_as(spec, folder / "gpt2", "gpt2")
    save_as(spec, folder / "tokenizer.json", "huggingface")
    save_as(spec, folder / "a.tiktoken", "tiktoken")
    inside = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path.relative_to(folder)) for path in inside]


def read_tokenizers(folder: Path) -> None:
    from trafo.checkpoint.locate import load_tokenizer
    from trafo.tokenizer import Tokenizer

    names = ("trafo", "gpt2", "tokenizer.json")
    _each(
        *(lambda name=name: _use_tokenizer(load_tokenizer(folder / name)) for name in names),
        lambda: _use_tokenizer(Tokenizer.load(folder / "a.tiktoken", pattern="gpt2")),
    )


def _use_tokenizer(tokenizer: Any) -> None:
    tokenizer.decode(tokenizer.encode("the cat <|endoftext|> ö"))


def make_tokens(folder: Path) -> list[str]:
    from trafo.tokenizer import encode_files

    (folder / "a.txt").write_text(TEXT)
    encode_files(small_tokenizer(), folder / "a.txt", folder / "a.tokens")
    return ["a.tokens", "a.tokens.json"]


def read_tokens(folder: Path) -> None:
    from trafo.tokenizer import TokenFile

    _each(
        lambda: TokenFile.open(folder / "a.tokens").verify(),
        lambda: int(TokenFile.open(folder / "a.tokens").ids[:10].sum()),
    )


# --- text


def make_texts(folder: Path) -> list[str]:
    import zstandard

    records = "".join(json.dumps({"text": line}) + "\n" for line in TEXT.splitlines())
    files = {
        "a.txt": TEXT.encode(),
        "a.jsonl": records.encode(),
        "a.txt.gz": gzip.compress(TEXT.encode()),
        "a.jsonl.zst": zstandard.compress(records.encode()),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return list(files)


def read_texts(folder: Path) -> None:
    from trafo.tokenizer import encode_files, train_bpe

    tokenizer = small_tokenizer()
    for path in sorted(folder.glob("a.*")):
        _each(
            lambda path=path: train_bpe(str(path), 270, ["<|endoftext|>"]),
            lambda path=path: encode_files(tokenizer, path, folder / "out.tokens"),
        )


def make_pairs(folder: Path) -> list[str]:
    lines = [f"one {i}\teins {i}" for i in range(9)]
    records = [
        json.dumps(dict(zip(("source", "target"), line.split("\t"), strict=True))) for line in lines
    ]
    (folder / "a.tsv").write_text("\n".join(lines) + "\n")
    (folder / "a.jsonl").write_text("\n".join(records) + "\n")
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(line.split("\t")[side] + "\n" for line in lines))
    return ["a.tsv", "a.jsonl", "a.en"]


def read_pair_files(folder: Path) -> None:
    from trafo.data.pairs import read_pairs

    aligned = [folder / "a.en", folder / "a.de"]
    for files in ([folder / "a.tsv"], [folder / "a.jsonl"], aligned):
        _each(
            lambda files=files: read_pairs(files),
            lambda files=files: read_pairs(files, errors="replace"),
        )


def _each(*reads: Callable[[], object]) -> None:
    """Call all: that one is refused must not hide what the others do."""
    from trafo.errors import TrafoError

    refusal = None
    for read in reads:
        try:
            read()
        except (TrafoError, OSError) as error:
            refusal = error
    if refusal is not None:
        raise refusal


SUBJECTS = {
    "yaml": Subject(make_yaml, read_yaml),
    "run": Subject(make_run, read_run),
    "checkpoint": Subject(make_checkpoint, read_checkpoint, fix_check_sums),
    "single-file": Subject(make_single_file, read_single_file),
    "hugging-face": Subject(make_hugging_face, lambda folder: _load_bundle(folder / "hf")),
    "gguf": Subject(make_gguf, lambda folder: _load_bundle(folder / "a.gguf")),
    "llama2c": Subject(make_llama2c, lambda folder: _load_bundle(folder / "a.bin")),
    "tokenizers": Subject(make_tokenizers, read_tokenizers),
    "tokens": Subject(make_tokens, read_tokens),
    "texts": Subject(make_texts, read_texts),
    "pairs": Subject(make_pairs, read_pair_files),
}
