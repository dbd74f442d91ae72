"""Hugging Face's `tokenizer.json` for byte-level BPE, in and out.

The file names a pipeline: normalizer, pre-tokenizer (the split pattern), model (vocabulary and
merges in GPT-2's byte alphabet), decoder, and added tokens, which are matched in the text first. A
file is refused if trafo would give other ids. Special tokens that a post-processor puts around a
text are left out: add them after encoding.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from trafo.errors import FormatError
from trafo.tokenizer.formats.byte_alphabet import to_printable
from trafo.tokenizer.formats.gpt2 import parse_merges, parse_vocab
from trafo.tokenizer.formats.huggingface_split import (
    byte_level,
    pattern_of_pre_tokenizer,
    pre_tokenizer_of_pattern,
)
from trafo.tokenizer.formats.json_files import read_json, write_json
from trafo.tokenizer.formats.spec import TokenizerSpec, check_id, with_special_tokens

# Switches of the model that would change the ids, and the values that do not.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
}


def read_huggingface(path: Path) -> TokenizerSpec:
    """Read a `tokenizer.json`."""
    content = read_json(path)
    where = str(path)
    model = _check_model(content.get("model"), where)
    normalizer = content.get("normalizer")
    if normalizer not in (None, {"type": "Sequence", "normalizers": []}):
        kind = normalizer.get("type") if isinstance(normalizer, dict) else normalizer
        what = f"has the normalizer {kind}, which trafo does not support"
        hint = "trafo encodes text as it is; a GGUF file of the same model may hold no normalizer"
        raise FormatError(what, where=where, hint=hint)
    specials = _added_tokens(content.get("added_tokens") or [], where)
    spec = TokenizerSpec(
        _ordinary_vocab(model["vocab"], specials, where),
        [],
        pattern=pattern_of_pre_tokenizer(content.get("pre_tokenizer"), where),
        whole_words=bool(model.get("ignore_merges")),
    )
    spec = with_special_tokens(spec, specials)
    merges = parse_merges(
        [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]],
        set(spec.vocab.values()),
        lambda index: f"{where}, merge {index + 1}",
    )
    return replace(spec, merges=merges)


def write_huggingface(
    spec: TokenizerSpec,
    path: Path,
    *,
    begin: str | None = None,
    shown: Collection[str] = (),
) -> None:
    """Write a `tokenizer.json`; `begin` goes before every text, `shown` tokens are printed."""
    added = [_added_token(token, i, token in shown) for token, i in _by_id(spec.special_tokens)]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer_of_pattern(spec.pattern, str(path)),
        "post_processor": None if begin is None else _template(begin, spec.special_tokens[begin]),
        "decoder": byte_level(),  # only the type matters, but `tokenizers` wants the others too
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": spec.whole_words,
            "vocab": _model_vocab(spec, str(path)),
            # As strings, which older versions of `tokenizers` read as well.
            "merges": [f"{to_printable(a)} {to_printable(b)}" for a, b in spec.merges],
        },
    }
    write_json(path, content, indent=1)


def _check_model(model: Any, where: str) -> dict[str, Any]:
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else None
        raise FormatError(f"the model is {kind!r}, trafo reads byte-level BPE", where=where)
    if not isinstance(model.get("vocab"), dict) or not isinstance(model.get("merges"), list):
        raise FormatError("the model lacks its vocab or its merges", where=where)
    for switch, harmless in _HARMLESS.items():
        if (value := model.get(switch)) not in harmless:
            raise FormatError(f"trafo does not support {switch} = {value!r}", where=where)
    return model


def _ordinary_vocab(
    id_of_key: dict[str, Any], specials: dict[str, int], where: str
) -> dict[int, bytes]:
    """Special tokens are in the vocabulary too, but as they are, not in the byte alphabet."""
    ordinary = {key: i for key, i in id_of_key.items() if key not in specials or specials[key] != i}
    return parse_vocab(ordinary, where)


def _added_tokens(added: Any, where: str) -> dict[str, int]:
    """All of them, special or not, are cut out of the text before it is split into words."""
    if not isinstance(added, list):
        raise FormatError("the added tokens are not a list", where=where)
    specials: dict[str, int] = {}
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not content:
            raise FormatError(f"an added token has the content {content!r}", where=where)
        place = f"{where}, added token {content!r}"
        for switch in ("single_word", "lstrip", "rstrip"):
            if token.get(switch):
                raise FormatError(f"trafo does not support {switch}", where=place)
        specials[content] = check_id(token.get("id"), place)
    return specials


def _added_token(token: str, i: int, is_shown: bool) -> dict[str, Any]:
    no = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": token, **no, "special": not is_shown}


def _template(begin: str, i: int) -> dict[str, Any]:
    """Put a token before a text, and before the first of two."""
    first, a, b = (
        {kind: {"id": name, "type_id": 0}}
        for kind, name in (("SpecialToken", begin), ("Sequence", "A"), ("Sequence", "B"))
    )
    return {
        "type": "TemplateProcessing",
        "single": [first, a],
        "pair": [first, a, b],
        "special_tokens": {begin: {"id": begin, "ids": [i], "tokens": [begin]}},
    }


def _model_vocab(spec: TokenizerSpec, where: str) -> dict[str, int]:
    """Special tokens are listed too, as they are: otherwise `tokenizers` changes their ids."""
    id_of_key = {to_printable(token): i for token, i in spec.ordinary_tokens().items()}
    for special, i in spec.special_tokens.items():
        if id_of_key.setdefault(special, i) != i:
            raise FormatError(
                f"the special token {special!r} reads like the ordinary token "
                f"{id_of_key[special]}; tokenizer.json cannot tell them apart",
                where=where,
            )
    return dict(_by_id(id_of_key))


def _by_id(id_of_key: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(id_of_key.items(), key=lambda item: item[1])
