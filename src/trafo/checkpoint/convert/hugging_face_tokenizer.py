"""The tokenizer of a Hugging Face folder: its files out, its begin and end tokens in. No torch.

`tokenizer.json` holds the tokenizer, and its post-processor says which token begins a text; which
tokens end one is said by `tokenizer_config.json`, `generation_config.json` and `config.json`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write
from trafo.runtime.json_text import read_json, write_json
from trafo.tokenizer.formats.huggingface import write_huggingface
from trafo.tokenizer.formats.load import load_any
from trafo.tokenizer.formats.spec import (
    END_OF_TEXT,
    TokenizerSpec,
    special_bytes,
    with_special_tokens,
)
from trafo.tokenizer.tokenizer import Tokenizer

CHAT_TEMPLATE = "chat_template.jinja"
_NAMED = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]


def write_hugging_face_tokenizer(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Write the files that `AutoTokenizer` and `generate` need and return a part of config.json."""
    shown = [token for token, i in tokenizer.special_tokens.items() if i not in tokenizer.hidden]
    begin = _name_of(tokenizer, tokenizer.begin)
    write_huggingface(tokenizer.spec, folder / "tokenizer.json", begin=begin, shown=shown)
    return write_markers(tokenizer, folder)


def write_markers(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """The files beside `tokenizer.json`: which tokens begin and end a text, by name and by id."""
    begin, ends = tokenizer.begin, sorted(tokenizer.ends)
    first = tokenizer.special_tokens.get(END_OF_TEXT) if begin is None else begin
    named = {
        "bos_token": _name_of(tokenizer, first),
        "eos_token": _name_of(tokenizer, min(ends, default=None)),
    }
    about = {name: token for name, token in named.items() if token is not None}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    adds = {"add_bos_token": begin is not None}
    ids: dict[str, Any] = {} if first is None else {"bos_token_id": first}
    ids |= {"eos_token_id": ends[0] if len(ends) == 1 else ends} if ends else {}
    about |= tokenizer.spec.chat_tokens
    if tokenizer.spec.chat_template is not None:
        with atomic_write(folder / CHAT_TEMPLATE, "wb") as file:
            file.write(tokenizer.spec.chat_template.encode())
    write_json(folder / "tokenizer_config.json", kind | about | adds, indent=2)
    write_json(folder / "generation_config.json", ids, indent=2)
    return ids


def _name_of(tokenizer: Tokenizer, special: int | None) -> str | None:
    return next((token for token, i in tokenizer.special_tokens.items() if i == special), None)


def read_hugging_face_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder, and which tokens begin and end a text, by all files that say so.

    As in `transformers`, the post-processor in `tokenizer.json` decides what is put before a text,
    not `add_bos_token`. A setting that would give other ids is refused.
    """
    about = _read(folder / "tokenizer_config.json")
    pipeline = _read(folder / "tokenizer.json")
    where = folder / "tokenizer_config.json"
    for setting in ("split_special_tokens", "add_prefix_space"):
        if about.get(setting):
            raise FormatError(f"trafo does not support {setting}", where=str(where))
    parts = _with_named_tokens(load_any(folder), about, folder)
    specials = parts.special_tokens
    ends = _ids(_read(folder / "generation_config.json")) or _ids(_read(folder / "config.json"))
    if (named := _content(about.get("eos_token"))) in specials:
        ends.add(specials[named])
    shown = {
        token["content"]
        for token in pipeline.get("added_tokens") or []
        if isinstance(token, dict) and not token.get("special", True)
    }
    hidden = {i for token, i in specials.items() if token not in shown}
    begin = _begin(pipeline.get("post_processor"), parts, str(folder / "tokenizer.json"))
    if (folder / "trafo.json").is_file() and about.get("add_bos_token") is True:
        begin = specials.get(_content(about.get("bos_token")))  # trafo's own folder has no template
    template, tokens = read_chat(folder)
    return Tokenizer.from_spec(
        replace(
            parts,
            begin=begin,
            ends=frozenset(ends) or None,
            hidden=frozenset(hidden | ends),
            chat_template=template,
            chat_tokens=tokens,
        )
    )


def read_chat(folder: Path) -> tuple[str | None, dict[str, str]]:
    """The chat template, if there is one, and the tokens that it may name."""
    about = _read(folder / "tokenizer_config.json")
    named = (_read(folder / "special_tokens_map.json") | about).items()
    tokens = {name: token for name, value in named if name in _NAMED if (token := _content(value))}
    file = folder / CHAT_TEMPLATE
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8"), tokens
        except UnicodeDecodeError:
            raise FormatError("is not UTF-8", where=str(file)) from None
    template = about.get("chat_template")
    if isinstance(template, list):  # one for each purpose
        by_name = {each.get("name"): each.get("template") for each in template}
        template = by_name.get("default", next(iter(by_name.values()), None))
    return template if isinstance(template, str) else None, tokens


def _with_named_tokens(parts: TokenizerSpec, about: dict[str, Any], folder: Path) -> TokenizerSpec:
    """Tokens that the files beside `tokenizer.json` name are special, as in `transformers`."""
    if "added_tokens_decoder" not in about:
        about = about | _read(folder / "special_tokens_map.json")
    named = [about[key] for key in about if key.endswith("_token")]
    for key in ("extra_special_tokens", "additional_special_tokens", "added_tokens_decoder"):
        tokens = about.get(key)
        named += tokens.values() if isinstance(tokens, dict) else list(tokens or ())
    missing = dict.fromkeys(map(_content, named)).keys() - {"", *parts.special_tokens}
    known = set(parts.vocab.values())
    for token in sorted(missing):
        if special_bytes(token) not in known:
            raise FormatError(
                f"the token {token!r} is named beside tokenizer.json, which lacks it",
                where=str(folder),
                hint="load the tokenizer by transformers, and save it: it gets an id there",
            )
    return with_special_tokens(parts, sorted(missing))


def _begin(processor: Any, parts: TokenizerSpec, where: str) -> int | None:
    """Find the one token that the post-processor may put before a text."""
    ids: list[Any] = []
    for step in _steps(processor):
        match step:
            case {"type": "ByteLevel"}:  # changes offsets alone
                continue
            case {"type": "TemplateProcessing", "single": list(pieces)}:
                *before, last = pieces or [None]
                ids = [i for piece in before for i in _ids_of_piece(piece, step)] + ids
                if isinstance(last, dict) and "Sequence" in last and len(ids) <= 1:
                    continue
        what = f"the post-processor {step.get('type')} puts more around a text than a begin token"
        raise FormatError(what, where=where, hint="trafo knows one token before a text, none after")
    if ids and ids[0] not in parts.vocab:
        raise FormatError(f"the begin token is {ids[0]!r}, which is not an id", where=where)
    return ids[0] if ids else None


def _ids_of_piece(piece: Any, template: dict[str, Any]) -> list[Any]:
    """The ids that a template has for a special token, or [None] for anything else."""
    match piece, template.get("special_tokens"):
        case {"SpecialToken": {"id": str(name)}}, {**tokens}:
            match tokens.get(name):
                case {"ids": list(ids)}:
                    return ids
    return [None]


def _steps(processor: Any) -> list[dict[str, Any]]:
    if not isinstance(processor, dict):
        return []
    if processor.get("type") == "Sequence":
        return [step for each in processor.get("processors") or [] for step in _steps(each)]
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
