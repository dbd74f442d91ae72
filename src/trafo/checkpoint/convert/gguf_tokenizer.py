"""The tokenizer inside a GGUF file, as llama.cpp writes and reads it. No torch.

`tokenizer.ggml.model` names the kind: `gpt2` is byte-level BPE, which trafo has; `llama` is
SentencePiece, which it does not have.
"""

from collections.abc import Collection
from dataclasses import replace
from types import ModuleType
from typing import Any

from trafo.checkpoint.convert.gguf_pre_tokenizers import (
    BEGIN,
    NAMES,
    NO_CASE,
    PATTERNS,
    REFUSED,
    WHOLE_WORDS,
)
from trafo.checkpoint.convert.gguf_reader import GGUF
from trafo.errors import ConfigError, TrafoError, require
from trafo.runtime.console import say
from trafo.tokenizer.formats.gpt2 import from_printable, to_printable
from trafo.tokenizer.formats.spec import END_OF_TEXT, TokenizerSpec
from trafo.tokenizer.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_ENDS = ("eos", "eot", "eom")  # of a text, a turn, a message
# Special tokens that end a completion in llama.cpp whatever the keys say: many files name only one.
_NAMES_OF_ENDS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> "
    "<eos> <turn|> <|tool_response> <\uff5cend\u2581of\u2581sentence\uff5c> [e~[ "
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> "
    "<reponame> <|file_sep|>"
)
# With these, <|end|> only ends a part of an answer.
_HARMONY = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})
# llama.cpp loads no tokenizer without merges. "!!" is not a token then, and becomes "!" and "!".
_NO_MERGES = "! !"
# What chat templates call a token, and the key of its id.
_NAMED = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_WHOLE_WORDS = "trafo.tokenizer.whole_words"


def write_tokenizer(
    writer: Any, gguf: ModuleType, vocab_size: int, tokenizer: Tokenizer | None
) -> None:
    """Add the tokenizer's fields to a file that is being written."""
    if tokenizer is None:
        writer.add_tokenizer_model("no_vocab")
        return
    if tokenizer.pattern not in NAMES:
        raise ConfigError(
            f"llama.cpp does not know the split pattern {tokenizer.pattern!r}",
            hint="write the file without a tokenizer",
        )
    pre = NAMES[tokenizer.pattern]
    if pre in NO_CASE:
        say(
            f"llama.cpp will split some texts differently: in its form of the {pre} pattern, "
            "combining marks (Hindi, Hebrew, Arabic, Thai, Tibetan) are not part of words, "
            "and letters outside ASCII have no case"
        )
    if tokenizer.spec.ignore_merges and pre not in WHOLE_WORDS:
        say("llama.cpp will merge words that are tokens from bytes, not take them whole")
    if tokenizer.spec.nfc:
        say("llama.cpp will take text as it is; this tokenizer normalizes it to NFC")
    special = set(tokenizer.special_tokens.values())
    tokens, kinds = [], []
    for i in range(vocab_size):
        known = tokenizer.vocab.get(i)
        if known is None:  # the model has room for more ids than the tokenizer uses
            tokens.append(f"[unused {i}]")
            kinds.append(_UNUSED)
        else:
            tokens.append(known.decode() if i in special else to_printable(known))
            kinds.append(_kind_of(i, special, tokenizer.hidden))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = [f"{to_printable(a)} {to_printable(b)}" for a, b in tokenizer.merges]
    writer.add_token_merges(merges or [_NO_MERGES])
    writer.add_bool(_WHOLE_WORDS, tokenizer.spec.ignore_merges)
    writer.add_add_bos_token(tokenizer.begin is not None)
    named = {"bos": tokenizer.begin, "eos": None}
    for name in _NAMED:
        token = tokenizer.spec.chat_tokens.get(f"{name}_token", "")
        named[name] = tokenizer.special_tokens.get(token, named.get(name))
    if tokenizer.spec.chat_template is not None:
        writer.add_chat_template(tokenizer.spec.chat_template)
    if named["bos"] is None:
        named["bos"] = tokenizer.special_tokens.get(END_OF_TEXT)
    end = named.pop("eos")
    for name, special_id in named.items():
        if special_id is not None:
            writer.add_uint32(f"tokenizer.ggml.{_NAMED[name]}_token_id", special_id)
    usual = {tokenizer.special_tokens.get(name) for name in _NAMES_OF_ENDS.split()}
    ends = sorted(tokenizer.ends, key=lambda i: (i != end, i in usual, i))
    what = f"{len(ends)} end tokens, of which a GGUF file holds {len(_ENDS)}"
    require(usual.issuperset(ends[len(_ENDS) :]), what, "write another format")
    for name, i in zip(_ENDS, ends, strict=False):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", i)


def _kind_of(i: int, special: set[int], hidden: Collection[int]) -> int:
    if i not in special:
        return _NORMAL
    return _CONTROL if i in hidden else _USER_DEFINED


def read_tokenizer(file: GGUF) -> Tokenizer:
    """The tokenizer stored in the file."""
    kind = file.text("tokenizer.ggml.model", "no_vocab")
    if kind in ("no_vocab", "none"):
        raise file.refusal("holds no tokenizer", "export it together with one")
    if kind != "gpt2":
        name = "SentencePiece (llama)" if kind == "llama" else kind
        raise file.refusal(f"its tokenizer is {name}", "trafo reads byte-level BPE (gpt2)")
    try:
        parts, controls = _read_parts(file)
        template = file.get("tokenizer.chat_template")
        ids = {
            f"{name}_token": file.get(f"tokenizer.ggml.{key}_token_id")
            for name, key in _NAMED.items()
        }
        tokens = {
            name: parts.vocab[i].decode(errors="replace")
            for name, i in ids.items()
            if isinstance(i, int) and i in parts.vocab
        }
        begin, ends = _read_markers(file, parts)
        return Tokenizer.from_spec(
            replace(
                parts,
                begin=begin,
                ends=ends,
                hidden=controls | ends,
                chat_template=template if isinstance(template, str) else None,
                chat_tokens=tokens,
            )
        )
    except TrafoError as error:
        raise file.refusal(f"its tokenizer: {error.what}", error.hint) from None
    except KeyError as error:
        what = f"its tokenizer: the character {error} is not in GPT-2's byte alphabet"
        raise file.refusal(what, "tokens that are no text need the type control") from None
    except (ValueError, UnicodeEncodeError) as error:
        raise file.refusal(f"its tokenizer is damaged: {error}") from None


def _read_parts(file: GGUF) -> tuple[TokenizerSpec, frozenset[int]]:
    """The tokenizer, and which of its special tokens are control tokens."""
    pre = file.text("tokenizer.ggml.pre", "default")
    if pre not in PATTERNS:
        why = REFUSED.get(pre, "it is unknown")
        raise file.refusal(
            f"the pre-tokenizer {pre!r}: {why}", f"trafo reads {', '.join(PATTERNS)}"
        )
    tokens = file.strings("tokenizer.ggml.tokens")
    kinds = file.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if not tokens or not isinstance(kinds, list) or len(tokens) != len(kinds):
        raise file.refusal(f"{len(tokens):,} tokens do not fit the token types")
    vocab, specials, controls = {}, {}, set()
    for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind in (_CONTROL, _USER_DEFINED, _UNKNOWN) and token:
            vocab[i], specials[token] = token.encode(), i
            controls |= set() if kind == _USER_DEFINED else {i}
        elif kind != _UNUSED and token:
            vocab[i] = from_printable(token)
    lines = file.strings("tokenizer.ggml.merges")
    pairs = [merge.split(" ") for merge in lines if lines != [_NO_MERGES]]
    merges = [(from_printable(left), from_printable(right)) for left, right in pairs]
    if not merges and any(len(vocab[i]) > 1 for i in vocab.keys() - specials.values()):
        raise file.refusal("tokens, but no merges that make them")
    ignore_merges = file.get(_WHOLE_WORDS)
    ignore_merges = pre in WHOLE_WORDS if ignore_merges is None else bool(ignore_merges)
    return TokenizerSpec(vocab, merges, specials, PATTERNS[pre], ignore_merges), frozenset(controls)


def _read_markers(file: GGUF, parts: TokenizerSpec) -> tuple[int | None, frozenset[int]]:
    """The begin token and the end tokens, from keys and from the names that llama.cpp knows.

    Like llama.cpp, trafo does not read `add_space_prefix` and `remove_extra_whitespaces` here: they
    are for SentencePiece.
    """
    if file.get("tokenizer.ggml.add_eos_token"):
        what = "its tokenizer puts an end token after every text, so nothing can follow a prompt"
        raise file.refusal(what, "use a file for generation; set add_eos_token to false")
    specials = parts.special_tokens
    named = (file.get(f"tokenizer.ggml.{key}_token_id") for key in _ENDS)
    ends = {i for i in named if isinstance(i, int) and i in parts.vocab}
    found = specials.keys() & set(_NAMES_OF_ENDS.split())
    if any(specials.keys() >= names for names in _HARMONY):
        found -= {"<|end|>"}
    ends |= {specials[name] for name in found}
    begins = file.get("tokenizer.ggml.add_bos_token")
    if begins is None:
        begins = file.get("tokenizer.ggml.pre") in BEGIN
    begin = file.get("tokenizer.ggml.bos_token_id") if begins else None
    if begin is not None and (not isinstance(begin, int) or begin not in parts.vocab):
        raise file.refusal(f"the begin token is {begin!r:.40}, which is not an id")
    return begin, frozenset(ends)
