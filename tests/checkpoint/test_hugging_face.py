"""Weights both ways, held to `transformers` with random weights."""

import itertools
import json
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.weights import shake

from trafo.checkpoint.convert.hugging_face import load_hugging_face, save_hugging_face
from trafo.errors import ConfigError, FormatError, InputError, StorageError
from trafo.models import GPT2, GPT2Config, TransformerLM

transformers = pytest.importorskip("transformers")

LM_SHAPE = {
    "vocab_size": 101,
    "context_length": 40,
    "d_model": 48,
    "num_layers": 3,
    "num_heads": 6,
    "d_ff": 80,
}
GPT2_SHAPE = GPT2Config(vocab_size=101, context_length=40, d_model=48, num_layers=3, num_heads=6)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def llama(kv_heads, tied=False):
    config = transformers.LlamaConfig(
        vocab_size=101,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=kv_heads,
        max_position_embeddings=40,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    return shake(transformers.LlamaForCausalLM(config))


def gpt2(tied=True):
    config = transformers.GPT2Config(
        vocab_size=101,
        n_positions=40,
        n_embd=48,
        n_layer=3,
        n_head=6,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
    )
    return shake(transformers.GPT2LMHeadModel(config))


def assert_same_logits_and_gradients(ours, theirs):
    ids = torch.randint(101, (2, 40))
    mine, other = ours(ids), theirs(ids).logits
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
    for logits in (mine, other):
        logits.square().mean().backward()
    last_norms = (ours.layers[0].ln1.weight.grad, first_norm(theirs).weight.grad)
    torch.testing.assert_close(*last_norms, atol=1e-5, rtol=1e-3)


def first_norm(theirs):
    if theirs.config.model_type == "gpt2":
        return theirs.transformer.h[0].ln_1
    return theirs.model.layers[0].input_layernorm


@pytest.mark.parametrize("kv_heads", [6, 2, 1])
@pytest.mark.parametrize("tied", [False, True])
def test_llama_in(tmp_path, kv_heads, tied):
    theirs = llama(kv_heads, tied)
    theirs.save_pretrained(tmp_path)
    ours = load_hugging_face(tmp_path)
    assert ours.config.num_kv_heads == kv_heads
    assert ours.config.rope_theta == 500.0
    assert_same_logits_and_gradients(ours, theirs)


@pytest.mark.parametrize("kv_heads", [None, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_llama_out(tmp_path, kv_heads, tied):
    switches = {"num_kv_heads": kv_heads, "tied_head": tied, "norm_eps": 1e-6}
    ours = shake(TransformerLM(**LM_SHAPE, rope_theta=700.0, **switches))
    parity = save_hugging_face(ours, tmp_path / "out")
    assert parity.largest_logit_difference == 0.0
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert_same_logits_and_gradients(ours, theirs.eval())


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2_in(tmp_path, tied):
    theirs = gpt2(tied)
    theirs.save_pretrained(tmp_path)
    assert_same_logits_and_gradients(load_hugging_face(tmp_path), theirs)


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2_out(tmp_path, tied):
    config = GPT2Config(**{**GPT2_SHAPE.__dict__, "tied_head": tied})
    ours = shake(GPT2(config))
    parity = save_hugging_face(ours, tmp_path / "out")
    assert parity.largest_logit_difference == 0.0
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out")
    assert_same_logits_and_gradients(ours, theirs.eval())


def test_gpt2_parameter_count_equals_theirs():
    with torch.device("meta"):
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    ours = GPT2(GPT2Config(), device="meta")
    count = sum(p.numel() for p in ours.parameters())
    assert count == sum(p.numel() for p in theirs.parameters()) == 124_439_808


def test_shards_and_names_without_prefix_are_read(tmp_path):
    """As the first GPT-2 files have them, with the masks that those also hold."""
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    old = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    old["h.0.attn.bias"] = torch.ones(1, 1, 40, 40)
    names = sorted(old)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: old[name] for name in part}, tmp_path / f"model-{number}.safetensors")
    assert_same_logits_and_gradients(load_hugging_face(tmp_path), theirs)


def test_half_precision_is_measured_and_recorded(tmp_path):
    ours = shake(TransformerLM(**LM_SHAPE, rope_theta=700.0))
    parity = save_hugging_face(ours, tmp_path / "out", dtype=torch.bfloat16)
    record = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert 0 < record["largest_logit_difference"] == parity.largest_logit_difference
    assert record["largest_logit_difference"] < 0.1 * record["largest_logit"]
    assert load_hugging_face(tmp_path / "out").lm_head.weight.dtype == torch.bfloat16
    assert ours.lm_head.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("matrices", "norms", "widest"),
    [
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.bfloat16, torch.float32),
        (torch.float16, torch.bfloat16, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.bfloat16, torch.bfloat16, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("make", [lambda: llama(2), gpt2])
def test_tensors_of_different_precision_are_not_rounded(tmp_path, make, matrices, norms, widest):
    """In one file or in two, they compute what transformers computes in the widest precision."""
    theirs = make()
    theirs.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state = {name: t.to(matrices if t.ndim > 1 else norms) for name, t in state.items()}
    (tmp_path / "model.safetensors").unlink()
    for number, is_matrix in enumerate((True, False)):
        part = {name: t for name, t in state.items() if (t.ndim > 1) == is_matrix}
        save_file(part, tmp_path / f"model-{number}.safetensors")
    ours = load_hugging_face(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {widest}
    theirs.to(widest).load_state_dict(state, strict=False)
    ids = torch.randint(101, (2, 40))
    atol = 0.1 if widest == torch.bfloat16 else 1e-5
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=atol, rtol=1e-5)
    save_hugging_face(ours, tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    for name, tensor in written.items():
        assert torch.equal(tensor, state[name].to(widest))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == str(widest).removeprefix("torch.")


def test_a_second_export_replaces_the_first_but_no_other_folder(tmp_path):
    ours = TransformerLM(**LM_SHAPE)
    save_hugging_face(ours, tmp_path / "out")
    save_hugging_face(ours, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match="holds other files"):
        save_hugging_face(ours, tmp_path / "mine")


@pytest.mark.parametrize(
    "switch",
    [
        {"norm_placement": "post"},
        {"norm": "layernorm"},
        {"positions": "learned"},
        {"feed_forward": "relu"},
        {"embedding_norm": True},
    ],
)
def test_what_llama_cannot_express_is_refused(tmp_path, switch):
    (field,) = switch
    with pytest.raises(ConfigError, match=f"{field} is .* cannot express"):
        save_hugging_face(TransformerLM(**LM_SHAPE, **switch), tmp_path / "out")
    assert not (tmp_path / "out").exists()


SLIDING = ["sliding_attention"] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rotary scaling 'yarn'"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"attention_bias": True}, r"no tensor .*q_proj.bias"),
        ({"model_type": "qwen3", "attention_bias": True}, "biases in attention"),
        ({"head_dim": 16}, "does not fit this model"),
        ({"head_dim": 7}, "does not split into heads|even head size"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"a": 1}},
            "rope_parameters and rope_scaling that disagree",
        ),
        (
            {
                "rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10.0},
                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 20.0},
            },
            "rope_parameters and rope_scaling that disagree",
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "has no 'low_freq_factor'"),
        ({"partial_rotary_factor": 0.5}, "rotation of a part of each head"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
        ({"model_type": "qwen2"}, r"no tensor .*q_proj.bias"),
        ({"model_type": "qwen3"}, r"no tensor .*q_norm.weight"),
        ({"num_hidden_layers": 4}, r"no tensor 'model.layers.3"),
        ({"num_hidden_layers": 2}, r"does not know the tensor 'model.layers.2"),
        ({"num_hidden_layers": 10**12}, "layers, but only 30 tensors"),
        ({"num_hidden_layers": "three"}, "does not describe a model"),
        ({"vocab_size": 102}, r"token_embeddings.weight is \(101, 48\), not \(102, 48\)"),
        ({"vocab_size": 2**40}, "does not fit|sizes in the config"),
        ({"vocab_size": 2**60}, r"vocab_size is \d+; it must be at most 2\^40"),
        ({"max_position_embeddings": 2**39}, "a context of .* tokens; at most 2,097,152"),
        ({"vocab_size": "many"}, "vocab_size is 'many'; it must be an integer"),
        (
            {"model_type": "mistral", "sliding_window": 7.5},
            r"window is 7\.5; it must be an integer",
        ),
        (
            {"model_type": "mistral", "sliding_window": 7, "layer_types": ["chunked"] * 3},
            r"layers of the type \['chunked'\]",
        ),
        (
            {"model_type": "mistral", "sliding_window": None, "layer_types": SLIDING},
            "a sliding window of no size",
        ),
        ({"tie_word_embeddings": True}, r"lm_head.weight is not model.embed_tokens.weight"),
        ({"rms_norm_eps": "small"}, "does not describe a model"),
        ({"rms_norm_eps": None}, "does not describe a model"),
        ({"rms_norm_eps": 10**400}, "does not describe a model"),
        ({"rope_scaling": [1]}, "does not describe a model"),
        (
            {"tie_word_embeddings": "false"},
            "tie_word_embeddings is 'false', expected true or false",
        ),
        ({"hidden_size": None}, None),
    ],
)
def test_what_we_cannot_compute_is_refused(tmp_path, change, message):
    save_hugging_face(TransformerLM(**LM_SHAPE), tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    config = json.loads(path.read_text()) | change
    if message is None:
        del config["hidden_size"]
        message = "config.json: has no 'hidden_size'"
    path.write_text(json.dumps(config))
    with pytest.raises(FormatError, match=message):
        load_hugging_face(tmp_path / "out")


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
OTHERS = {
    "llama-own-head": ("Llama", {"head_dim": 12}),
    "llama-linear": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "llama-3.1": ("Llama", {"rope_scaling": LLAMA3, "rope_theta": 500.0}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 12}),
    "mistral-window": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0},
    ),
    "qwen3": ("Qwen3", {"head_dim": 12, "rms_norm_eps": 1e-3}),
    "qwen3-window": (
        "Qwen3",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0, "head_dim": 8},
    ),
}


def other(name):
    return random_model(*OTHERS[name])


def random_model(family, changes):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=101,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=40,
        **deepcopy(changes),  # transformers writes into the blocks
    )
    return shake(getattr(transformers, f"{family}ForCausalLM")(config))


@pytest.mark.parametrize("name", OTHERS)
def test_other_families_both_ways(tmp_path, name):
    theirs = other(name)
    theirs.save_pretrained(tmp_path / "in")
    ours = load_hugging_face(tmp_path / "in")
    assert_same_logits_and_gradients(ours, theirs)
    assert save_hugging_face(ours, tmp_path / "out").largest_logit_difference == 0
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    family = theirs.config.model_type
    assert again.config.model_type == ("llama" if name in ("mistral", "qwen2") else family)
    ids = torch.randint(101, (2, 40))
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, theirs(ids).logits, atol=1e-5, rtol=1e-5)


SWITCHES = itertools.product(
    [{}, {"rope_scaling": "linear", "rope_factor": 2.5}, {"rope_scaling": "llama3"}],
    [{}, {"qkv_bias": True}, {"qk_norm": True}],
    [{"num_heads": 6}, {"num_heads": 6, "head_size": 12}, {"num_heads": 5, "head_size": 8}],
    [{}, {"window": 7}],
)


@pytest.mark.parametrize("switches", list(SWITCHES))
@torch.no_grad()
def test_every_combination_of_switches_runs_in_transformers(tmp_path, switches):
    shape = LM_SHAPE | {"num_layers": 1}
    for switch in switches:
        shape |= switch
    ours = shake(TransformerLM(**shape, num_kv_heads=1)).eval()
    save_hugging_face(ours, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(101, (1, 40))
    torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)


def test_biases_on_the_output_are_refused_unless_they_are_zero(tmp_path):
    theirs = random_model("Llama", {"attention_bias": True})
    for layer in theirs.model.layers:
        torch.nn.init.normal_(layer.self_attn.o_proj.bias)
    theirs.save_pretrained(tmp_path)
    with pytest.raises(FormatError, match="biases on the output of attention"):
        load_hugging_face(tmp_path)
    for layer in theirs.model.layers:
        layer.self_attn.o_proj.bias.data.zero_()
    theirs.save_pretrained(tmp_path)
    assert_same_logits_and_gradients(load_hugging_face(tmp_path), theirs)


def test_the_older_spelling_of_rotary_scaling_is_read(tmp_path):
    """`rope_scaling` beside `rope_theta`, as all files before 2026 have it."""
    theirs = other("llama-3.1")
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    path.write_text(json.dumps(config))
    assert_same_logits_and_gradients(load_hugging_face(tmp_path), theirs)


def test_a_window_in_some_layers_is_refused(tmp_path):
    theirs = other("qwen2-window")
    theirs.config.layer_types = ["full_attention", "sliding_attention"]
    theirs.save_pretrained(tmp_path)
    with pytest.raises(FormatError, match="a sliding window in some layers only"):
        load_hugging_face(tmp_path)


def test_two_switches_that_no_family_has_together_are_refused(tmp_path):
    model = TransformerLM(**LM_SHAPE, qk_norm=True, qkv_bias=True)
    with pytest.raises(ConfigError, match="qk_norm and qkv_bias are both on"):
        save_hugging_face(model, tmp_path / "out")


def test_the_index_says_which_files_count(tmp_path):
    theirs = llama(6)
    theirs.save_pretrained(tmp_path, max_shard_size="50KB")
    index = tmp_path / "model.safetensors.index.json"
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    save_file({"other.weight": torch.ones(2)}, tmp_path / "consolidated.safetensors")
    assert_same_logits_and_gradients(load_hugging_face(tmp_path), theirs)
    for wrong in ("model-9.safetensors", "../model.safetensors", 3, ["a", "b"]):
        content = json.loads(index.read_text())
        content["weight_map"]["lm_head.weight"] = wrong
        index.write_text(json.dumps(content))
        with pytest.raises(FormatError, match=r"index.json: names .*, which is not here"):
            load_hugging_face(tmp_path)
    content["weight_map"]["lm_head.weight"] = "consolidated.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"says that 'lm_head.weight' is in consolidated.safe"):
        load_hugging_face(tmp_path)
    save_file({"lm_head.weight": torch.ones(101, 48)}, tmp_path / "consolidated.safetensors")
    assert load_hugging_face(tmp_path).lm_head.weight.min() == 1.0  # not that of another file
    index.write_text("{}")
    with pytest.raises(FormatError, match="names no files"):
        load_hugging_face(tmp_path)


def test_strange_dtypes_are_named(tmp_path):
    save_hugging_face(TransformerLM(**LM_SHAPE), tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int8)
    save_file(tensors, path)
    with pytest.raises(FormatError, match=r"lm_head.weight is stored as int8"):
        load_hugging_face(tmp_path / "out")


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: cannot be read"):
        load_hugging_face(tmp_path)
    save_hugging_face(TransformerLM(**LM_SHAPE), tmp_path / "out")
    weights = tmp_path / "out" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(FormatError, match=r"model\.safetensors: not safetensors, or damaged"):
        load_hugging_face(tmp_path / "out")
    weights.unlink()
    (tmp_path / "out" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FormatError, match=r"no .safetensors file here; .*\.bin files"):
        load_hugging_face(tmp_path / "out")


def optional(**values):
    """Each field with one of its values, or without it."""
    return st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in values.items()})


ROPE = st.builds(
    lambda rope, more: rope | more,
    st.sampled_from(
        [
            {},
            {"rope_type": "default"},
            {"rope_type": "linear", "factor": 2.5},
            {"type": "linear", "factor": 2.5},
            LLAMA3,
            {key: value for key, value in LLAMA3.items() if "original" not in key},
            {"full_attention": {"rope_type": "linear", "factor": 2.5}},
        ]
    ),
    optional(rope_theta=[20.0, 500.0]),
)
CONFIGS = st.builds(
    lambda rope, more: rope | more,
    st.fixed_dictionaries({}, optional={"rope_scaling": ROPE, "rope_parameters": ROPE}),
    optional(
        rope_theta=[20.0, 500.0],
        original_max_position_embeddings=[8, 24],
        sliding_window=[None, 5],
        use_sliding_window=[False, True],
        max_window_layers=[0, 1, 28],
        layer_types=[["full_attention"] * 2, ["sliding_attention"] * 2],
        head_dim=[8, 12],
        num_key_value_heads=[None, 2],
        rms_norm_eps=[1e-2],
        tie_word_embeddings=[True, False],
        attention_bias=[False, True],
    ),
)


@given(st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]), CONFIGS)
@example("llama", {"rope_parameters": LLAMA3, "original_max_position_embeddings": 24})
@example("llama", {"rope_scaling": LLAMA3, "rope_theta": 500.0})
@example("mistral", {"sliding_window": 5, "layer_types": ["full_attention"] * 2})
@settings(max_examples=60)
@torch.no_grad()
def test_a_config_means_what_it_means_to_transformers(family, change):
    """Or trafo refuses it."""
    config = {"model_type": family, "vocab_size": 101, "max_position_embeddings": 40}
    config |= {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8} | change
    ids = torch.randint(101, (1, 30))
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        try:
            parsed = transformers.AutoConfig.from_pretrained(folder)
            theirs = shake(transformers.AutoModelForCausalLM.from_config(parsed)).eval()
            state = {name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}
            state |= {name: torch.zeros_like(state[name]) for name in state if "o_proj.b" in name}
            theirs.load_state_dict(state)
            expected = theirs(ids).logits
        except Exception:  # of many kinds, for what is not a model
            reject()
        if theirs.config.tie_word_embeddings:
            del state["lm_head.weight"]
        save_file(state, Path(folder, "model.safetensors"))
        try:
            ours = load_hugging_face(folder)
        except FormatError:
            return
    torch.testing.assert_close(ours(ids), expected, atol=1e-4, rtol=1e-4)


def test_a_top_level_original_context_wins_as_in_transformers(tmp_path):
    change = {"rope_parameters": LLAMA3, "original_max_position_embeddings": 24}
    theirs = random_model("Llama", change)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    ours = load_hugging_face(tmp_path)
    assert ours.config.rope_original_context == 24
    assert_same_logits_and_gradients(ours, theirs)
