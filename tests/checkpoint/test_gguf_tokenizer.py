"""GGUF tokenizers that others write, against llama.cpp itself: the same ids, or a refusal."""

import itertools
import json
import random
import urllib.request
from string import ascii_uppercase

import numpy as np
import pytest

from trafo.checkpoint.convert.gguf_tokenizer import NAMES, PATTERNS, REFUSED
from trafo.checkpoint.locate import load_tokenizer
from trafo.errors import FormatError
from trafo.tokenizer.formats.gpt2 import to_printable

gguf = pytest.importorskip("gguf")
KIND = gguf.TokenType

CHARACTERS = [
    *"abzsABTSLd'  \n\t\r.,!?-/$+|`(1029_~<",
    *"éÉßжЖ中文あ가다²٣½…。，“€😀",
    *"\u00a0\u0301\u3000हि",
]
WORDS = ["it's", "I'LL", " 1234567", "CamelCase", "HTTPServer", "  ", " \n ", "...", "1,000", "a b"]
# What llama.cpp's engine does not tell apart: case and marks beyond ASCII, white space, digits.
CASE = "éÉßжЖ\u0301हि"
NOT_ALIKE = {"gpt-4o": CASE, "tekken": CASE, "youtu": CASE + ascii_uppercase, "superbpe": "٣"}
NOT_ALIKE |= dict.fromkeys(["deepseek-llm", "deepseek-coder"], "\u3000")


def vocabulary() -> tuple[list[str], list[str]]:
    """Bytes, characters, and all pairs of characters: where a word ends, no pair is merged."""
    tokens = {bytes([i]): None for i in range(256)}
    pairs = list(itertools.product(sorted(set(CHARACTERS)), repeat=2))
    random.Random(1).shuffle(pairs)
    encoded = [character.encode() for character in CHARACTERS]
    merges = [(each[:k], each[k : k + 1]) for each in encoded for k in range(1, len(each))]
    merges = list(dict.fromkeys([*merges, *((a.encode(), b.encode()) for a, b in pairs)]))
    tokens |= {left + right: None for left, right in merges}
    return (
        [to_printable(token) for token in tokens],
        [f"{to_printable(left)} {to_printable(right)}" for left, right in merges],
    )


TOKENS, MERGES = vocabulary()
BEGIN = len(TOKENS)


def write(path, pre, *, specials=(), **fields):
    """A file with the vocabulary, one begin token, other special tokens, and weights of zero."""
    writer = gguf.GGUFWriter(path, "llama")
    tokens = [*TOKENS, "<begin>", *(name for name, _ in specials)]
    kinds = [KIND.NORMAL] * len(TOKENS) + [KIND.CONTROL] + [kind for _, kind in specials]
    sizes = {"context_length": 256, "embedding_length": 32, "block_count": 1}
    sizes |= {"feed_forward_length": 32, "vocab_size": len(tokens)}
    for key, value in sizes.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    for key, value in ({"bos_token_id": BEGIN, "eos_token_id": BEGIN} | fields).items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float32))
    names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    for name in names:
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((32, 32), np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ask(server, route, **body):
    """The answer of llama.cpp's server."""
    content = json.dumps(body).encode()
    request = urllib.request.Request(server.listening_address + route, content)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def serve(path):
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx, params.warmup, params.verbosity = 1, 256, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(params)


def texts(leave_out, count):
    choose = random.Random(0)
    characters = [each for each in CHARACTERS if each not in leave_out]
    words = [each for each in WORDS if not set(each) & set(leave_out)]
    for _ in range(count):
        parts = [
            choose.choice(words) if choose.random() < 0.2 else choose.choice(characters) * repeat
            for repeat in choose.choices([1, 1, 1, 2, 3], k=choose.randrange(1, 14))
        ]
        yield "".join(parts)


def assert_same_ids(path, leave_out="", count=150):
    server, tokenizer = serve(path), load_tokenizer(path)
    begin = [] if tokenizer.begin is None else [tokenizer.begin]
    for text in texts(leave_out, count):
        theirs = ask(server, "/tokenize", content=text, add_special=True)["tokens"]
        assert begin + tokenizer.encode(text) == theirs, text


@pytest.mark.parametrize("pre", sorted(set(NAMES.values())))
def test_every_pattern_splits_as_llama_cpp_does(tmp_path, pre):
    write(tmp_path / "a.gguf", pre)
    assert_same_ids(tmp_path / "a.gguf", NOT_ALIKE.get(pre, ""))


@pytest.mark.slow
@pytest.mark.parametrize("pre", [*PATTERNS, None])
def test_every_name_means_the_same(tmp_path, pre):
    """Also the words that are tokens, and whether the begin token comes first."""
    write(tmp_path / "a.gguf", pre)
    alike = NOT_ALIKE.get(NAMES[PATTERNS[pre or "default"]], "")
    assert_same_ids(tmp_path / "a.gguf", alike, count=40)


@pytest.mark.parametrize("add", [True, False])
def test_the_file_decides_about_the_begin_token(tmp_path, add):
    write(tmp_path / "a.gguf", "smollm", add_bos_token=add)
    assert_same_ids(tmp_path / "a.gguf", count=3)
    assert (load_tokenizer(tmp_path / "a.gguf").begin == BEGIN) is add


SPECIALS = [
    ("<|im_start|>", KIND.CONTROL),
    ("<|im_end|>", KIND.CONTROL),
    ("<think>", KIND.USER_DEFINED),
    ("<unk>", KIND.UNKNOWN),
    ("<|endoftext|>", KIND.CONTROL),
    ("<|end|>", KIND.CONTROL),
    ("   ", KIND.USER_DEFINED),
    ("<nothing>", KIND.UNUSED),
]


def test_token_types_decide_what_text_may_hold(tmp_path):
    """Text matches user-defined tokens; control tokens only if it is allowed to."""
    write(tmp_path / "a.gguf", "gpt-2", specials=SPECIALS)
    server, tokenizer = serve(tmp_path / "a.gguf"), load_tokenizer(tmp_path / "a.gguf")
    text = "a<|im_start|>b<think>c<unk>    d<nothing>s <|endoftext|><begin>"
    for policy, parse in (("allow", True), ("ignore", False)):
        theirs = ask(server, "/tokenize", content=text, parse_special=parse)["tokens"]
        assert tokenizer.encode(text, policy) == theirs
    assert tokenizer.special_tokens["<think>"] in tokenizer.encode(text, "ignore")


@pytest.mark.parametrize("others", [[], [("<|return|>", KIND.CONTROL), ("<|call|>", KIND.CONTROL)]])
def test_the_same_tokens_end_an_answer(tmp_path, others):
    specials = [*SPECIALS, *others]
    write(tmp_path / "a.gguf", "gpt-2", specials=specials)
    server, tokenizer = serve(tmp_path / "a.gguf"), load_tokenizer(tmp_path / "a.gguf")
    for i in range(BEGIN, BEGIN + 1 + len(specials)):
        body = {"prompt": "a", "n_predict": 2, "temperature": 0, "logit_bias": [[i, 1000.0]]}
        answer = ask(server, "/completion", **body)
        assert (answer["stop_type"] == "eos") is (i in tokenizer.ends), specials[i - BEGIN - 1]


@pytest.mark.parametrize("pre", [*REFUSED, "of-tomorrow"])
def test_others_are_refused_by_name(tmp_path, pre):
    write(tmp_path / "a.gguf", pre)
    with pytest.raises(FormatError, match=f"the pre-tokenizer '{pre}': {REFUSED.get(pre, '')}"):
        load_tokenizer(tmp_path / "a.gguf")


def test_a_file_that_ends_every_text_is_refused(tmp_path):
    write(tmp_path / "a.gguf", "gpt-2", add_eos_token=True)
    with pytest.raises(FormatError, match="puts an end token after every text"):
        load_tokenizer(tmp_path / "a.gguf")
