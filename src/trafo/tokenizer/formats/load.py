"""Tokenizers in and out of files: trafo's own folder, and the formats of others.

In: a path. Out: `TokenizerSpec`, whatever the format; and back. trafo's folder holds

    vocab.json, merges.txt   as GPT-2 writes them
    tokenizer.json           for Hugging Face's `tokenizers`
    trafo.json               what those do not say: pattern, Unicode version, special tokens,
                             training facts, and the content hash that shows whether a file was
                             changed

Nothing is ever unpickled. Every file is replaced as a whole, `trafo.json` last.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import storage_errors
from trafo.runtime.json_text import read_json, write_json
from trafo.runtime.remote import local_copy_of
from trafo.tokenizer.formats.gpt2 import read_gpt2, write_gpt2
from trafo.tokenizer.formats.huggingface import read_huggingface, write_huggingface
from trafo.tokenizer.formats.spec import (
    END_OF_TEXT,
    SpecialTokens,
    TokenizerSpec,
    check_id,
    hash_spec,
    with_special_tokens,
)
from trafo.tokenizer.formats.tiktoken import read_tiktoken, write_tiktoken
from trafo.tokenizer.kernels.unicode_classes import UNICODE_VERSION

TokenizerFormat = Literal["trafo", "gpt2", "huggingface", "tiktoken"]

# In this order: `tokenizer.json` says more than the two files beside it.
_FILES_OF_FORMAT: dict[TokenizerFormat, tuple[str, ...]] = {
    "trafo": ("trafo.json",),
    "huggingface": ("tokenizer.json",),
    "gpt2": ("vocab.json", "merges.txt"),
}
_VERSION = 1


def save_folder(
    spec: TokenizerSpec, folder: str | Path, training: Mapping[str, Any] | None = None
) -> None:
    """Write trafo's folder. `training` is kept as it is, for people to read."""
    folder = _save_gpt2_folder(spec, Path(folder))
    try:
        write_huggingface(spec, folder / "tokenizer.json")
    except FormatError:  # a rare one that only trafo can express, so an old file must not stay
        (folder / "tokenizer.json").unlink(missing_ok=True)
    about = {
        "format": "trafo tokenizer",
        "version": _VERSION,
        "pattern": spec.pattern,
        "unicode": UNICODE_VERSION,
        "special_tokens": spec.special_tokens,
        "whole_words": spec.ignore_merges,
        "content_hash": hash_spec(spec),
        "training": dict(training or {}),
    }
    if spec.nfc or spec.normalized_tokens:
        about |= {"nfc": spec.nfc, "normalized_tokens": sorted(spec.normalized_tokens)}
    write_json(folder / "trafo.json", about, indent=2)


def load_folder(folder: Path) -> TokenizerSpec:
    """Read trafo's folder and check that it is what was written."""
    about = _read_about(folder)
    specials = about["special_tokens"]
    for special, i in specials.items():
        check_id(i, f"{folder / 'trafo.json'}, special token {special!r}")
    spec = read_gpt2(folder / "vocab.json", folder / "merges.txt", specials, about["pattern"])
    spec = replace(
        spec,
        ignore_merges=about["whole_words"],
        nfc=about.get("nfc") is True,
        normalized_tokens=frozenset(map(str, about.get("normalized_tokens") or ())),
    )
    if hash_spec(spec) != about["content_hash"]:
        raise FormatError(
            "a file was changed or damaged: the content does not match the hash in trafo.json",
            where=str(folder),
            hint="save the tokenizer again, or delete trafo.json to read the files as they are",
        )
    return spec


def check_folder(folder: Path, spec: TokenizerSpec) -> None:
    """Raise unless all files in trafo's folder hold this tokenizer, also those for others."""
    if hash_spec(load_folder(folder)) != hash_spec(spec):
        raise FormatError("holds another tokenizer", where=str(folder))
    with TemporaryDirectory() as scratch:
        path, expected = (Path(place) / "tokenizer.json" for place in (folder, scratch))
        try:
            write_huggingface(spec, expected)
        except FormatError:  # there should be none
            return
        if not path.is_file() or path.read_bytes() != expected.read_bytes():
            raise FormatError("is missing, or not as trafo writes it", where=str(path))


def load_training_facts(folder: Path) -> dict[str, Any]:
    """Read what `save_folder` was given as `training`."""
    return dict(_read_about(folder)["training"])


def detect_format(path: str | Path) -> TokenizerFormat:
    """Tell the format of a file or folder by its names, of a rank file also by its first line."""
    if not str(path):
        raise InputError("the path of the tokenizer is empty")
    path = Path(path)
    if path.is_dir():
        for folder_format, names in _FILES_OF_FORMAT.items():
            if all((path / name).exists() for name in names):
                return folder_format
        hint = "expected trafo.json, tokenizer.json, or vocab.json and merges.txt"
        raise InputError("holds no tokenizer", where=str(path), hint=hint)
    if not path.is_file():
        what = "not a regular file" if path.exists() else "no such file or folder"
        raise InputError(what, where=str(path), hint="check the spelling")
    if path.suffix == ".json" and path.name not in ("vocab.json", "trafo.json"):
        return "huggingface"
    with path.open("rb") as file:
        fields = file.readline(4096).split()
    if path.suffix == ".tiktoken" or (len(fields) == 2 and fields[1].isdigit()):
        return "tiktoken"
    hint = "give a folder, a tokenizer.json or a .tiktoken file"
    raise InputError("is not a tokenizer file that trafo knows", where=str(path), hint=hint)


def load_any(
    path: str | Path, *, pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> TokenizerSpec:
    """Read a tokenizer in any format.

    `pattern` is for formats that do not name theirs. `special_tokens` are added to those that the
    file names. Where it names none, the usual ones are assumed, unless some are given here.
    """
    path = local_copy_of(path) if str(path) else path
    file_format = detect_format(path)
    path = Path(path)
    match file_format:
        case "tiktoken":
            return read_tiktoken(path, pattern, special_tokens)
        case "gpt2":
            vocab, merges = path / "vocab.json", path / "merges.txt"
            spec = read_gpt2(vocab, merges, special_tokens or (), pattern or "gpt2")
            if special_tokens is None and END_OF_TEXT.encode() in spec.vocab.values():
                special_tokens = [END_OF_TEXT]
        case "huggingface":
            spec = read_huggingface(path / "tokenizer.json" if path.is_dir() else path)
        case "trafo":
            spec = load_folder(path)
    if pattern is not None:
        spec = replace(spec, pattern=pattern)
    return with_special_tokens(spec, special_tokens or ())


def save_as(spec: TokenizerSpec, path: str | Path, file_format: TokenizerFormat) -> None:
    """Write a tokenizer in any format: trafo and gpt2 into a folder, the others into a file."""
    path = Path(path)
    match file_format:
        case "trafo":
            save_folder(spec, path)
        case "gpt2":
            _save_gpt2_folder(spec, path)
        case "huggingface":
            write_huggingface(spec, path)
        case "tiktoken":
            write_tiktoken(spec, path)


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / "trafo.json"
    about = read_json(path)
    version = about.get("version")
    if about.get("format") != "trafo tokenizer" or not isinstance(version, int):
        raise FormatError("does not describe a tokenizer", where=str(path))
    if version > _VERSION:
        what = f"has version {version}, but this trafo reads only up to {_VERSION}"
        raise FormatError(what, where=str(path), hint="update trafo")
    unicode = about.get("unicode", UNICODE_VERSION)
    if unicode != UNICODE_VERSION:
        what = f"splits text by Unicode {unicode}, this trafo by Unicode {UNICODE_VERSION}"
        hint = "use the trafo that made it; newer characters would get other ids"
        raise FormatError(what, where=str(path), hint=hint)
    kinds = {"pattern": str, "special_tokens": dict, "whole_words": bool, "content_hash": str}
    for key, kind in {**kinds, "training": dict}.items():
        if not isinstance(about.get(key), kind):
            raise FormatError(f"{key!r} is missing or not of type {kind.__name__}", where=str(path))
    return about


def _save_gpt2_folder(spec: TokenizerSpec, folder: Path) -> Path:
    with storage_errors(folder, "making the folder"):
        folder.mkdir(parents=True, exist_ok=True)
    write_gpt2(spec, folder / "vocab.json", folder / "merges.txt")
    return folder
