"""Hugging Face's `tokenizer.json` for byte-level BPE, in and out.

The file names a pipeline: normalizer, pre-tokenizer (the split pattern), model (vocabulary and
merges in GPT-2's byte alphabet), decoder, and added tokens. Those that are not `normalized` are
matched in the text first, the others in what is left of it after normalization. A file is refused
if trafo would give other ids. Special tokens that a post-processor puts around a text are left out:
add them after encoding. Nor is a text truncated or padded, as in `transformers`.
"""

from collections.abc import Collection
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from trafo.errors import FormatError
from trafo.runtime.console import say
from trafo.runtime.json_text import read_json, write_json
from trafo.tokenizer.formats.gpt2 import from_printable, parse_merges, parse_vocab, to_printable
from trafo.tokenizer.formats.pre_tokenizer import (
    make_byte_level,
    read_pre_tokenizer,
    write_pre_tokenizer,
)
from trafo.tokenizer.formats.spec import TokenizerSpec, check_id, with_special_tokens
from trafo.tokenizer.patterns import normalize_nfc

# Switches of the model that would change the ids, and the values that do not.
_HARMLESS_VALUES: dict[str, tuple[Any, ...]] = {
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
    # Decoders that leave the bytes of the ids as they are.
    _check_steps("decoder", content.get("decoder"), ("ByteLevel", "Fuse"), where)
    nfc = _check_steps("normalizer", content.get("normalizer"), ("NFC",), where) > 0
    for block in ("truncation", "padding"):
        if content.get(block) is not None:
            peer = "neither does transformers unless asked"
            say(f"{where}: trafo does not apply its {block}; {peer}")
    specials, normalized = _read_added_tokens(content.get("added_tokens") or [], model, nfc, where)
    # Special tokens are in the vocabulary too, but as they are, not in the byte alphabet.
    vocab = model["vocab"].items()
    ordinary = {key: i for key, i in vocab if key not in specials or specials[key] != i}
    spec = TokenizerSpec(
        parse_vocab(ordinary, where),
        [],
        pattern=read_pre_tokenizer(content.get("pre_tokenizer"), where),
        ignore_merges=bool(model.get("ignore_merges")),
        nfc=nfc,
        normalized_tokens=normalized,
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
    """Write a `tokenizer.json`.

    The special token `begin` goes before every text. Decoders print the tokens in `shown`.
    """
    off = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    added = [
        {"id": i, "content": token, **off}
        | {"normalized": token in spec.normalized_tokens, "special": token not in shown}
        for token, i in sorted(spec.special_tokens.items(), key=itemgetter(1))
    ]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if spec.nfc else None,
        "pre_tokenizer": write_pre_tokenizer(spec.pattern, str(path)),
        "post_processor": begin and _make_template(begin, spec.special_tokens[begin]),
        "decoder": make_byte_level(),  # only the type matters, but `tokenizers` wants all of it
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": spec.ignore_merges,
            "vocab": _make_vocab(spec, str(path)),
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
    for switch, harmless in _HARMLESS_VALUES.items():
        if (value := model.get(switch)) not in harmless:
            raise FormatError(f"trafo does not support {switch} = {value!r}", where=where)
    return model


def _check_steps(part: str, step: Any, known: Collection[str], where: str) -> int:
    """Count the steps of a part of the pipeline and refuse those that trafo does not know."""
    match step:
        case None:
            return 0
        case {"type": "Sequence"} if isinstance(steps := step.get(f"{part}s"), list):
            return sum(_check_steps(part, each, known, where) for each in steps)
        case {"type": str(kind)} if kind in known:
            return 1
    name = step.get("type") if isinstance(step, dict) else step
    what = f"has the {part} {name}, which trafo does not support"
    hint = "trafo knows NFC; a GGUF file of the same model may hold no normalizer"
    raise FormatError(what, where=where, hint=hint if part == "normalizer" else None)


def _read_added_tokens(
    added: Any, model: dict[str, Any], nfc: bool, where: str
) -> tuple[dict[str, int], frozenset[str]]:
    """Return the ids of all added tokens, special or not, and which a second pass looks for.

    `tokenizers` takes the id from the vocabulary, or else the next free one, whatever the file
    says. A file that says another is refused.
    """
    if not isinstance(added, list):
        raise FormatError("the added tokens are not a list", where=where)
    specials: dict[str, int] = {}
    normalized: set[str] = set()
    next_id = len(model["vocab"])
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not content:
            raise FormatError(f"an added token has the content {content!r}", where=where)
        place = f"{where}, added token {content!r}"
        for switch in ("single_word", "lstrip", "rstrip"):
            if token.get(switch):
                raise FormatError(f"trafo does not support {switch}", where=place)
        matched = normalize_nfc(content) if nfc and token.get("normalized") else content
        if matched in specials:
            raise FormatError("is listed twice", where=place)
        i = check_id(token.get("id"), place)
        if content not in model["vocab"]:
            expected, next_id = next_id, next_id + 1
        elif _is_another_token(content, model):
            what = "the vocabulary has this key for other bytes, which text may hold"
            raise FormatError(what, where=place)
        else:
            expected = model["vocab"][content]
        if i != expected:
            what = f"has the id {i}, but `tokenizers` gives it the id {expected}"
            hint = "correct the file; without an id in the vocabulary, the next free one counts"
            raise FormatError(what, where=place, hint=hint)
        specials[matched] = i
        if token.get("normalized"):
            normalized.add(matched)
    if not nfc and not _can_overlap(specials.keys() - normalized, normalized):
        normalized.clear()  # one pass finds the same
    return specials, frozenset(normalized)


def _is_another_token(content: str, model: dict[str, Any]) -> bool:
    """Tell whether a key of the vocabulary is, in the byte alphabet, a token that text can become.

    `é` is the key of the byte 0xE9, so `tokenizers` gives the added token `é` the id of that byte.
    (A token that merges make is missed when the merges are read.)
    """
    try:
        token = from_printable(content)
    except KeyError:
        return False
    is_word = bool(model.get("ignore_merges")) and "\ufffd" not in token.decode(errors="replace")
    return token != content.encode() and (len(token) == 1 or is_word)


def _can_overlap(first: Collection[str], second: Collection[str]) -> bool:
    """Tell whether in some text a token of one set overlaps one of the other."""
    starts = {token[:k] for token in first for k in range(1, len(token) + 1)}
    ends = {token[-k:] for token in first for k in range(1, len(token) + 1)}
    return any(
        any(token[-k:] in starts or token[:k] in ends for k in range(1, len(token) + 1))
        or any(other in token or token in other for other in first)
        for token in second
    )


def _make_template(begin: str, i: int) -> dict[str, Any]:
    """Make the post-processor that puts a token before a text, and before the first of two."""
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


def _make_vocab(spec: TokenizerSpec, where: str) -> dict[str, int]:
    """List special tokens too, as they are, or `tokenizers` would change their ids."""
    id_of_key = {to_printable(token): i for token, i in spec.ordinary_tokens().items()}
    for special, i in spec.special_tokens.items():
        if id_of_key.setdefault(special, i) != i:
            what = (
                f"the special token {special!r} reads like the ordinary token {id_of_key[special]}"
            )
            raise FormatError(f"{what}; tokenizer.json cannot tell them apart", where=where)
    return dict(sorted(id_of_key.items(), key=itemgetter(1)))
