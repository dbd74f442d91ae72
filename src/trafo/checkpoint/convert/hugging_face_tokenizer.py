"""The tokenizer of a Hugging Face folder: its files out, its begin and end tokens in. No torch.

`tokenizer.json` holds the tokenizer; which tokens begin and end a text is said by its
post-processor, `tokenizer_config.json`, `generation_config.json` and `config.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trafo.checkpoint.model_tokenizer import Markers, markers_of
from trafo.tokenizer.formats.huggingface import write_huggingface
from trafo.tokenizer.formats.json_files import read_json, write_json
from trafo.tokenizer.formats.spec import END_OF_TEXT, TokenizerSpec
from trafo.tokenizer.tokenizer import Tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """The files that `AutoTokenizer` and `generate` ask for; what config.json says of it."""
    markers = markers_of(tokenizer)
    shown = [token for token, i in tokenizer.special_tokens.items() if i not in markers.hidden]
    begin = _name_of(tokenizer, markers.begin)
    write_huggingface(tokenizer.spec, folder / "tokenizer.json", begin=begin, shown=shown)
    return write_markers(tokenizer, folder)


def write_markers(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """The files beside `tokenizer.json`: which tokens begin and end a text, by name and by id."""
    markers = markers_of(tokenizer)
    ends = sorted(markers.ends)
    first = tokenizer.special_tokens.get(END_OF_TEXT) if markers.begin is None else markers.begin
    named = {
        "bos_token": _name_of(tokenizer, first),
        "eos_token": _name_of(tokenizer, min(ends, default=None)),
    }
    about = {name: token for name, token in named.items() if token is not None}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    adds = {"add_bos_token": markers.begin is not None}
    ids: dict[str, Any] = {} if first is None else {"bos_token_id": first}
    ids |= {"eos_token_id": ends[0] if len(ends) == 1 else ends} if ends else {}
    write_json(folder / "tokenizer_config.json", kind | about | adds, indent=2)
    write_json(folder / "generation_config.json", ids, indent=2)
    return ids


def _name_of(tokenizer: Tokenizer, special: int | None) -> str | None:
    return next((token for token, i in tokenizer.special_tokens.items() if i == special), None)


def read_markers(folder: Path, parts: TokenizerSpec) -> Markers:
    """Which tokens begin and end a text, by all files that say something about it."""
    specials = parts.special_tokens
    about = _read(folder / "tokenizer_config.json")
    pipeline = _read(folder / "tokenizer.json")
    ends = _ids(_read(folder / "generation_config.json")) or _ids(_read(folder / "config.json"))
    if (named := _content(about.get("eos_token"))) in specials:
        ends.add(specials[named])
    shown = {
        token["content"]
        for token in pipeline.get("added_tokens") or []
        if isinstance(token, dict) and not token.get("special", True)
    }
    hidden = {i for token, i in specials.items() if token not in shown}
    usual = Markers.usual(specials)
    return Markers(
        _begin(pipeline, about, specials), frozenset(ends) or usual.ends, frozenset(hidden | ends)
    )


def _begin(pipeline: dict[str, Any], about: dict[str, Any], specials: dict[str, int]) -> int | None:
    """The token that the post-processor, or else `add_bos_token`, puts before a text."""
    for step in _steps(pipeline.get("post_processor")):
        if step.get("type") != "TemplateProcessing":
            continue
        first = next(iter(step.get("single") or []), None)
        special = first.get("SpecialToken") if isinstance(first, dict) else None
        token = special.get("id") if isinstance(special, dict) else None
        return specials.get(token) if isinstance(token, str) else None
    bos = _content(about.get("bos_token"))
    return specials.get(bos) if about.get("add_bos_token") is True else None


def _steps(processor: Any) -> list[dict[str, Any]]:
    if not isinstance(processor, dict):
        return []
    if processor.get("type") == "Sequence":
        return [step for step in processor.get("processors") or [] if isinstance(step, dict)]
    return [processor]


def _content(token: Any) -> str:
    """A token is a string, or an object that holds it."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _ids(config: dict[str, Any]) -> set[int]:
    """`eos_token_id` is a number, several, or none."""
    value = config.get("eos_token_id")
    return {i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)}


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
