"""The tokenizer inside a GGUF file, as llama.cpp writes and reads it. No torch.

`tokenizer.ggml.model` names the kind: `gpt2` is byte-level BPE, which trafo has; `llama` is
SentencePiece, which it does not have. `tokenizer.ggml.pre` names the pre-tokenizer: the split
pattern, and the two habits that llama.cpp ties to names.

llama.cpp's engine for regular expressions has no upper and lower case and takes every white space
for the same character, so several of its expressions only come close to the model's own (gpt-4o,
tekken, youtu and their like; deepseek-llm at ideographic spaces). Here is what the model was
trained with. Only Falcon's own sequence, which splits digits inside the bytes of a character, is
replaced by llama.cpp's.
"""

from collections.abc import Collection
from dataclasses import replace
from types import ModuleType
from typing import Any

from trafo.checkpoint.convert.gguf_reader import GGUF
from trafo.errors import ConfigError, TrafoError, require
from trafo.runtime.console import say
from trafo.tokenizer.formats.gpt2 import from_printable, to_printable
from trafo.tokenizer.formats.pre_tokenizer import split_digits_first
from trafo.tokenizer.formats.spec import END_OF_TEXT, TokenizerSpec
from trafo.tokenizer.patterns import THEN, pattern_regex
from trafo.tokenizer.tokenizer import Tokenizer


def _changed(pattern: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in pattern
        pattern = pattern.replace(old, new)
    return pattern


_GPT4, _GPT4O = pattern_regex("gpt4"), pattern_regex("gpt4o")
_ONE_DIGIT = (r"\p{N}{1,3}", r"\p{N}")
_QWEN2 = _changed(_GPT4, _ONE_DIGIT)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HAN_AND_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters that have case, as of some older Unicode.
_CASED = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)

# The first digits of a number whose other digits come in threes.
_BEFORE_THREES = r"(?<!\d)\d{1,2}(?=(?:\d{3})*(?!\d))"

_LLAMA3 = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
_NAMES: dict[tuple[str, ...], str] = {
    ("gpt2",): "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum "
    "modern-bert exaone4 mpt olmo jais trillion granite-docling",
    ("llama3",): f"{_LLAMA3} dbrx smaug-bpe glm4 chatglm-bpe",
    ("gpt4o",): "gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m",
    # Of Bailing's own expression, the possessive repetitions change nothing.
    (_QWEN2,): "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 "
    "bailingmoe bailingmoe2 llada-moe",
    (
        _changed(
            _QWEN2,
            (r"?\p{L}+", r"?[\p{L}\p{M}]+"),
            (r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"),
        ),
    ): "qwen35",
    (split_digits_first(r"\p{N}", "gpt2"),): "smollm starcoder refact command-r codeshell exaone "
    "minerva-7b mellum2",
    (split_digits_first(r"\p{N}{1,3}", "llama3"),): "minicpm5",
    (_changed(_GPT4O, _ONE_DIGIT, ("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "")),): "tekken",
    (_changed(_QWEN2, (r"]+[\r\n]*", r"\r\n]+")),): "seed-coder",
    (
        _changed(
            _GPT4,
            (
                r"\s+(?!\S)|\s+",
                "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")),
            ),
        )
        + r"\s",
    ): "jais-2",
    (
        _changed(
            _QWEN2,
            (r"?\p{L}+", r"?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"),
            (r"]+[\r\n]*", r"]+[\r\n/]?"),
        ),
    ): "exaone-moe",
    (_BLOOM,): "bloom poro-chat gpt3-finnish",
    (_BLOOM, r"\p{N}"): "viking",
    (r"[^\n]+|\n+", _QWEN2): "laguna",
    (r"\p{N}+", rf"(?:\D|{_BEFORE_THREES})+|\d{{3}}(?:\D|{_BEFORE_THREES})*"): "superbpe",
    (r"[\p{P}$+<=>\^~|`]+", "gpt2", "[0-9][0-9][0-9]"): "falcon",
    (r"[\p{P}$+<=>\^~|]+", "gpt2", r"\p{N}+", "[0-9][0-9][0-9]"): "default",
    (
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+(?![\s\S])",
        _HAN_AND_HANGUL,
        r"\p{N}+",
    ): "deepseek-llm",
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_AND_HANGUL, r"\p{N}"): "deepseek-coder",
    (
        r"\p{N}{1,3}",
        _HAN_AND_KANA,
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ): "deepseek-v3 hunyuan-dense joyai-llm",
    (
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b"
        f"\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|{_HAN_AND_KANA}",
        _changed(_GPT4O, _ONE_DIGIT),
    ): "youtu",
    (
        "<sentinel:[0-9]+>",
        "IMGIMG[A-I]{1,4}Z",
        r"[\t\n]|    |  ",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        "gpt2",
    ): "chameleon",
}

PATTERNS = {name: THEN.join(steps) for steps, names in _NAMES.items() for name in names.split()}
"""the split pattern of each name"""
NAMES = {THEN.join(steps): names.split()[0] for steps, names in _NAMES.items()}
"""the first name of each pattern, for files that are written"""
NAMES["gpt4"] = NAMES["llama3"]

WHOLE_WORDS = {*_LLAMA3.split(), "tekken", "youtu", "minicpm5", "granite-embed-multi-97m"}
"""words that are tokens are taken whole"""
BEGIN = {*_LLAMA3.split(), "tekken", "chameleon"}
"""texts begin with the begin token, unless the file says otherwise"""

NO_CASE = {"gpt-4o", "tekken", "youtu"}
"""of those, llama.cpp's form has no marks in words and no case of all letters"""

_NOT_BYTES = "its tokens are characters, not bytes"
_ENCODER = "it is for encoders, which put a separator after every text"
_NUMBERS = (
    "llama.cpp splits its numbers and the spaces before them unlike the model's own tokenizer"
)
REFUSED = {
    **dict.fromkeys(("gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"), _NOT_BYTES),
    **dict.fromkeys(("jina-v1-en", "jina-v2-code", "roberta-bpe"), _ENCODER),
    **dict.fromkeys(("afmoe", "tiny_aya", "cohere2moe"), _NUMBERS),
    "kimi-k2": "it has ranks instead of merges",
}
"""names that trafo knows and does not read, and why"""


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


def write_gguf_tokenizer(
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


def read_gguf_tokenizer(file: GGUF) -> Tokenizer:
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
