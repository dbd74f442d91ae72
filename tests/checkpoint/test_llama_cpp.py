"""GGUF files in llama.cpp itself: every model that can be exported, and fields that files have."""

import itertools
import json
import urllib.request

import pytest
import torch
from tests.checkpoint.test_gguf_file import BYTES, lm, rewritten, small_gpt2
from tests.weights import shake

from trafo.checkpoint.convert.gguf_file import load_gguf, save_gguf
from trafo.checkpoint.locate import load_tokenizer
from trafo.errors import ConfigError, FormatError
from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer, train_tokenizer

xllamacpp = pytest.importorskip("xllamacpp")

PROMPT = [1, 2, 3, 200, 7, 65, 66, 67, 9, 12]
TEXT = range(32, 127)  # of other bytes, llama.cpp reports only those that complete a character


def serve(path):
    """llama.cpp with float32 keys and values, and exact attention."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx, params.warmup, params.verbosity = 1, 32, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def encode(server, text):
    """The ids that llama.cpp finds."""
    body, kind = json.dumps({"content": text}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.listening_address}/tokenize", body, kind)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


@torch.no_grad()
def assert_llama_cpp_agrees(path, atol=1e-3):
    """20 greedy tokens, and the log-probabilities of the whole vocabulary before each."""
    request = {
        "prompt": PROMPT,
        "n_predict": 20,
        "temperature": 0,
        "n_probs": 260,
        "logit_bias": [[i, -1000.0] for i in range(260) if i not in TEXT],
    }
    rows = serve(path).handle_completions(request)["choices"][0]["logprobs"]["content"]
    found = [row["id"] for row in rows]
    assert len(found) == 20
    logits = load_gguf(path)(torch.tensor([PROMPT + found[:-1]]))[0, len(PROMPT) - 1 :]
    assert (logits[:, TEXT.start : TEXT.stop].argmax(-1) + TEXT.start).tolist() == found
    theirs = torch.empty_like(logits)
    for at, row in enumerate(rows):
        for each in row["top_logprobs"]:
            theirs[at, each["id"]] = each["logprob"]
    torch.testing.assert_close(logits.log_softmax(-1), theirs, atol=atol, rtol=0.0)


ROPES = {
    "none": {},
    "linear": {"rope_factor": 2.5},
    "llama3": {"rope_factor": 4.0, "rope_original_context": 16},
}
COMBINATIONS = list(
    itertools.product(
        ROPES,
        [{}, {"qkv_bias": True}, {"qk_norm": True}, {"qkv_bias": True, "qk_norm": True}],
        [{}, {"head_size": 12}, {"num_heads": 5, "head_size": 6, "num_kv_heads": 1}],
        [False, True],
        [4, 2, 1],
    )
)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_combination_of_switches_is_refused_or_runs_in_llama_cpp(tmp_path, stride):
    """Every seventh of them has all pairs of switches."""
    path = tmp_path / "model.gguf"
    torch.manual_seed(0)
    for rope, switches, head, tied, kv_heads in COMBINATIONS[::stride]:
        model = TransformerLM(
            **{"vocab_size": 260, "context_length": 32, "d_model": 32, "num_layers": 2, "d_ff": 48},
            **{"num_heads": 4, "num_kv_heads": kv_heads, "tied_head": tied, "norm_eps": 1e-2}
            | head
            | {"rope_scaling": rope, "rope_theta": 700.0, **ROPES[rope], **switches},
        )
        shake(model)
        if "qk_norm" in switches and (rope == "llama3" or "qkv_bias" in switches):
            with pytest.raises(ConfigError, match=r"qk_norm (is on with rope_sc|and qkv_bias)"):
                save_gguf(model, path, tokenizer=BYTES)
        else:
            save_gguf(model, path, tokenizer=BYTES)
            assert_llama_cpp_agrees(path)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "model",
    [
        lambda: shake(lm(qkv_bias=True, rope_scaling="llama3", rope_original_context=16)),
        small_gpt2,
        lambda: small_gpt2(tied_head=False),
    ],
)
def test_every_precision_runs_in_llama_cpp(tmp_path, model, dtype):
    """It rounds activations to the precision of the weights, and looks GELU up in a table."""
    save_gguf(model(), tmp_path / "model.gguf", tokenizer=BYTES, dtype=dtype)
    atol = {"float32": 5e-3, "float16": 0.05, "bfloat16": 0.2}[dtype]
    assert_llama_cpp_agrees(tmp_path / "model.gguf", atol=atol)


@pytest.mark.parametrize(
    ("fields", "drop"),
    [
        ({"attention.sliding_window": 5}, ()),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, ()),
        ({"rope.scaling.type": "linear"}, ()),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 0.0}, ()),
        ({"rope.scaling.factor": 4.0}, ()),
        ({"rope.scaling.original_context_length": 8, "rope.scaling.finetuned": True}, ()),
        ({"rope.scaling.attn_factor": 2.0}, ()),
        ({"rope.scale_linear": 4.0}, ()),
        ({"attention.scale": 0.5}, ()),
        ({"attention.causal": False}, ()),
        ({"logit_scale": 0.5}, ()),
        ({}, ("rope.freq_base", "rope.dimension_count", "vocab_size")),
        ({}, ("attention.key_length", "attention.value_length")),
    ],
)
@pytest.mark.parametrize("switches", [{}, {"qk_norm": True}])
def test_fields_mean_what_they_mean_to_llama_cpp(tmp_path, fields, drop, switches):
    """Or trafo refuses the file."""
    kind = "qwen3" if switches else "llama"
    save_gguf(shake(lm(**switches)), tmp_path / "plain.gguf", tokenizer=BYTES)
    change = {f"{kind}.{key}": value for key, value in fields.items()}
    left_out = [f"{kind}.{key}" for key in drop]
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", change, drop=left_out)
    try:
        load_gguf(path)
    except FormatError:
        return
    assert_llama_cpp_agrees(path)


def test_a_sliding_window_is_ignored_and_said(tmp_path, capsys):
    save_gguf(lm(), tmp_path / "plain.gguf")
    change = {"llama.attention.sliding_window": 5}
    path = rewritten(tmp_path / "plain.gguf", tmp_path / "model.gguf", change)
    assert load_gguf(path).config.window is None
    assert "sliding_window 5 is ignored, as in llama.cpp" in capsys.readouterr().err


TEXTS = [
    "Hello World HTTPServer don't WE'LL 123456 ...!!\n\n  x /\n a  \t b\u00a0c\u3000d\r\n\r\ne",
    "École Über über Привет мир ПРИВЕТ Καλημέρα 你好世界，测试 こんにちは 안녕하세요 ١٢٣ ½",
    "👩‍👩‍👧 ❤️ 🇩🇪 ʰello",
]
DIFFERENT = ["नमस्ते दुनिया", "שָׁלוֹם", "བོད་ཡིག", "مَرْحَبًا", "สวัสดี", "ÉCOLE"]


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "llama3", "gpt4o"])
def test_texts_have_the_same_ids_in_llama_cpp_unless_it_is_said(tmp_path, capsys, pattern):
    (tmp_path / "text.txt").write_text("\n".join([*TEXTS, *DIFFERENT]) * 50, encoding="utf-8")
    trained = train_tokenizer(tmp_path / "text.txt", 900, ["<|endoftext|>"], pattern=pattern)
    tokenizer = Tokenizer.from_spec(trained.spec)
    capsys.readouterr()
    model = TransformerLM(tokenizer.vocab_size, 32, 32, 1, 4, 48)
    save_gguf(model, tmp_path / "model.gguf", tokenizer=tokenizer)
    says = capsys.readouterr().err
    server = serve(tmp_path / "model.gguf")

    def is_same(text):
        return encode(server, text) == tokenizer.encode(text)

    assert all(map(is_same, TEXTS))
    if pattern == "gpt4o":
        assert not any(map(is_same, DIFFERENT))
        assert "combining marks" in " ".join(says.split())
    else:
        assert all(map(is_same, DIFFERENT))
        assert not says


def test_a_tokenizer_of_bytes_alone_works_in_llama_cpp(tmp_path):
    """It loads no tokenizer without merges."""
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    save_gguf(lm(), tmp_path / "model.gguf", tokenizer=tokenizer)
    assert load_tokenizer(tmp_path / "model.gguf").spec == tokenizer.spec
    text = "größer!!! als\0\0\n"
    assert encode(serve(tmp_path / "model.gguf"), text) == list(text.encode())
