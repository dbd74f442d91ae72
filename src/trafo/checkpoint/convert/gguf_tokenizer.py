"""The tokenizer inside a GGUF file, as llama.cpp writes and reads it. No torch.

`tokenizer.ggml.model` names the kind: `gpt2` is byte-level BPE, which trafo has; `llama` is
SentencePiece, which it does not have.
"""

from collections.abc import Collection
from types import ModuleType
from typing import Any

from trafo.checkpoint.convert.gguf_reader import GGUF
from trafo.checkpoint.model_tokenizer import Markers, ModelTokenizer, markers_of
from trafo.errors import ConfigError, TrafoError, require
from trafo.runtime.console import say
from trafo.tokenizer.formats.byte_alphabet import from_printable, to_printable
from trafo.tokenizer.formats.spec import END_OF_TEXT, TokenizerSpec
from trafo.tokenizer.tokenizer import Tokenizer

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# llama.cpp's names for the ways of cutting text into words; it knows no others.
_SPLITS = {
    "gpt2": "gpt-2",
    "gpt4": "llama-bpe",
    "llama3": "llama-bpe",
    "gpt4o": "gpt-4o",
    _QWEN2: "qwen2",
}
# And the other way round, with names that others write.
_PATTERNS = {
    "gpt-2": "gpt2",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
    "gpt-4o": "gpt4o",
    "qwen2": _QWEN2,
}
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")  # words that are tokens are taken whole; begin token
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_ENDS = ("eos", "eot", "eom")  # of a text, a turn, a message
_WHOLE_WORDS = "trafo.tokenizer.whole_words"


def write_tokenizer(
    writer: Any, gguf: ModuleType, vocab_size: int, tokenizer: Tokenizer | None
) -> None:
    """Add the tokenizer's fields to a file that is being written."""
    if tokenizer is None:
        writer.add_tokenizer_model("no_vocab")
        return
    if tokenizer.pattern not in _SPLITS:
        raise ConfigError(
            f"llama.cpp does not know the split pattern {tokenizer.pattern!r}",
            hint="write the file without a tokenizer",
        )
    if not tokenizer.merges:
        what = "the tokenizer has no merges, and llama.cpp loads none without them"
        raise ConfigError(what, hint="write the file without a tokenizer")
    if tokenizer.pattern == "gpt4o":
        say(
            "llama.cpp will split some texts differently: in its form of the gpt4o pattern, "
            "combining marks (Hindi, Hebrew, Arabic, Thai, Tibetan) are not part of words, "
            "and letters outside ASCII have no case"
        )
    if tokenizer.spec.whole_words and _SPLITS[tokenizer.pattern] not in _LLAMA3:
        say("llama.cpp will merge words that are tokens from bytes, not take them whole")
    special, markers = set(tokenizer.special_tokens.values()), markers_of(tokenizer)
    tokens, kinds = [], []
    for i in range(vocab_size):
        known = tokenizer.vocab.get(i)
        if known is None:  # the model has room for more ids than the tokenizer uses
            tokens.append(f"[unused {i}]")
            kinds.append(_UNUSED)
        else:
            tokens.append(known.decode() if i in special else to_printable(known))
            kinds.append(_kind_of(i, special, markers.hidden))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_SPLITS[tokenizer.pattern])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{to_printable(a)} {to_printable(b)}" for a, b in tokenizer.merges])
    writer.add_bool(_WHOLE_WORDS, tokenizer.spec.whole_words)
    writer.add_add_bos_token(markers.begin is not None)
    first = tokenizer.special_tokens.get(END_OF_TEXT) if markers.begin is None else markers.begin
    if first is not None:
        writer.add_bos_token_id(first)
    what = f"{len(markers.ends)} end tokens, of which a GGUF file holds {len(_ENDS)}"
    require(len(markers.ends) <= len(_ENDS), what, "write another format")
    for name, i in zip(_ENDS, sorted(markers.ends), strict=False):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", i)


def _kind_of(i: int, special: set[int], hidden: Collection[int]) -> int:
    if i not in special:
        return _NORMAL
    return _CONTROL if i in hidden else _USER_DEFINED


def read_tokenizer(file: GGUF) -> ModelTokenizer:
    """The tokenizer stored in the file."""
    kind = file.text("tokenizer.ggml.model", "no_vocab")
    if kind in ("no_vocab", "none"):
        raise file.refusal("holds no tokenizer", "export it together with one")
    if kind != "gpt2":
        name = "SentencePiece (llama)" if kind == "llama" else kind
        raise file.refusal(f"its tokenizer is {name}", "trafo reads byte-level BPE (gpt2)")
    try:
        parts, controls = _read_parts(file)
        return ModelTokenizer.of(parts, _read_markers(file, parts, controls))
    except TrafoError as error:
        raise file.refusal(f"its tokenizer: {error.what}", error.hint) from None
    except KeyError as error:
        what = f"its tokenizer: the character {error} is not in GPT-2's byte alphabet"
        raise file.refusal(what, "tokens that are no text need the type control") from None
    except (ValueError, UnicodeEncodeError) as error:
        raise file.refusal(f"its tokenizer is damaged: {error}") from None


def _read_parts(file: GGUF) -> tuple[TokenizerSpec, set[int]]:
    """The tokenizer, and which of its special tokens are control tokens."""
    pre = file.text("tokenizer.ggml.pre", "gpt-2")
    if pre not in _PATTERNS:
        raise file.refusal(f"the split pattern {pre!r}", f"trafo knows {', '.join(_PATTERNS)}")
    tokens = file.strings("tokenizer.ggml.tokens")
    kinds = file.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if not tokens or not isinstance(kinds, list) or len(tokens) != len(kinds):
        raise file.refusal(f"{len(tokens):,} tokens do not fit the token types")
    vocab, specials, controls = {}, {}, set()
    for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind in (_CONTROL, _USER_DEFINED):
            vocab[i], specials[token] = token.encode(), i
            controls |= {i} if kind == _CONTROL else set()
        elif kind != _UNUSED:
            vocab[i] = from_printable(token)
    pairs = [merge.split(" ") for merge in file.strings("tokenizer.ggml.merges")]
    merges = [(from_printable(left), from_printable(right)) for left, right in pairs]
    if not merges and any(len(vocab[i]) > 1 for i in vocab.keys() - specials.values()):
        raise file.refusal("tokens, but no merges that make them")
    whole_words = file.get(_WHOLE_WORDS)
    whole_words = pre in _LLAMA3 if whole_words is None else bool(whole_words)
    return TokenizerSpec(vocab, merges, specials, _PATTERNS[pre], whole_words), controls


def _read_markers(file: GGUF, parts: TokenizerSpec, controls: set[int]) -> Markers:
    """From its keys; without them, the usual ones."""
    named = (file.get(f"tokenizer.ggml.{key}_token_id") for key in _ENDS)
    ends = {i for i in named if isinstance(i, int)}
    begins = file.get("tokenizer.ggml.add_bos_token")
    if begins is None:
        begins = file.get("tokenizer.ggml.pre") in _LLAMA3
    begin = file.get("tokenizer.ggml.bos_token_id") if begins else None
    if begin is not None and (not isinstance(begin, int) or begin not in parts.vocab):
        raise file.refusal(f"the begin token is {begin!r:.40}, which is not an id")
    usual = Markers.usual(parts.special_tokens)
    return Markers(begin, frozenset(ends) or usual.ends, frozenset(controls | ends))
